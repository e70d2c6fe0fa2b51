//! What the node may use: memory, disk and file descriptors, and the alarms that stop publishers in time.
