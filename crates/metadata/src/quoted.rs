//! How texts name an object: `queue 'q' in vhost '/'`.

pub(crate) fn queue(vhost: &str, name: &str) -> String {
    format!("queue '{name}' in vhost '{vhost}'")
}

pub(crate) fn exchange(vhost: &str, name: &str) -> String {
    format!("exchange '{name}' in vhost '{vhost}'")
}
