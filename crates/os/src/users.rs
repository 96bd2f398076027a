//! Names of users and groups from passwd(5) and group(5).

use std::fs;
use std::io::Read;

/// Largest size of a file, in octets. Larger ones belong to a directory service, which is not used.
const MOST: u64 = 16 << 20;

/// The number of a group, by name or number.
pub fn group(name: &str) -> Option<u32> {
    number("/etc/group", name)
}

/// The number of a user, by name or number.
pub fn user(name: &str) -> Option<u32> {
    number("/etc/passwd", name)
}

/// The name of a user, or the number if it has none.
pub fn name_of(uid: u32) -> String {
    let text = read("/etc/passwd");
    let named = text.lines().find_map(|line| {
        let mut parts = line.split(':');
        let name = parts.next()?;
        (parts.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| uid.to_string())
}

/// The groups of a user.
pub fn groups_of(uid: u32) -> Vec<u32> {
    let passwd = read("/etc/passwd");
    let of_user = passwd.lines().find_map(|line| {
        let parts: Vec<&str> = line.split(':').collect();
        (parts.get(2)?.parse() == Ok(uid)).then_some((*parts.first()?, parts.get(3)?.parse().ok()?))
    });
    let Some((name, own)) = of_user else { return Vec::new() };
    let groups = read("/etc/group");
    let of_groups = groups.lines().filter_map(|line| {
        let parts: Vec<&str> = line.split(':').collect();
        parts.get(3)?.split(',').any(|member| member == name).then(|| parts.get(2)?.parse().ok()).flatten()
    });
    of_groups.chain([own]).collect()
}

/// The third field of a name's line, unless the name is a number.
fn number(file: &str, name: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    read(file).lines().find_map(|line| {
        let mut parts = line.split(':');
        (parts.next() == Some(name)).then(|| parts.nth(1)?.parse().ok()).flatten()
    })
}

fn read(file: &str) -> String {
    let mut text = Vec::new();
    // A file that cannot be read has no names.
    let _ = fs::File::open(file).and_then(|file| file.take(MOST).read_to_end(&mut text));
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_by_name_and_a_number_stands_for_itself() {
        assert_eq!((user("root"), group("root")), (Some(0), Some(0)));
        assert_eq!((user("4000000000"), user("no-such-user")), (Some(4_000_000_000), None));
        assert_eq!((name_of(0).as_str(), name_of(4_000_000_000).as_str()), ("root", "4000000000"));
        assert!(groups_of(0).contains(&0));
        assert_eq!(groups_of(4_000_000_000), [0; 0]);
    }
}
