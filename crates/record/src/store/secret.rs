//! Passwords of databases' URLs, which nobody is told.

/// Returns a word of a command line as it may be recorded: a database's URL without its password.
pub fn without_password(word: &str) -> String {
    let Some(at) = word.find("postgres://").or_else(|| word.find("postgresql://")) else {
        return word.to_owned();
    };
    let begin = at + word[at..].find("://").map_or(0, |colon| colon + 3);
    let (rest, query) = match word[begin..].split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (&word[begin..], None),
    };
    let mut kept = word[..begin].to_owned();
    match rest.rsplit_once('@') {
        Some((user, host)) => {
            kept.push_str(user.split(':').next().unwrap_or_default());
            kept.push('@');
            kept.push_str(host);
        }
        None => kept.push_str(rest),
    }
    let options = query.iter().flat_map(|query| query.split('&'));
    let options: Vec<&str> = options.filter(|one| !is_secret(one)).collect();
    if !options.is_empty() {
        kept.push('?');
        kept.push_str(&options.join("&"));
    }
    kept
}

fn is_secret(option: &str) -> bool {
    option.starts_with("password=") || option.starts_with("sslpassword=")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_told() {
        let cases = [
            ("postgres://ann:se@cret@db:5432/lab", "postgres://ann@db:5432/lab"),
            ("--db=postgresql://ann:secret@db/lab", "--db=postgresql://ann@db/lab"),
            ("postgres://db/lab?password=secret", "postgres://db/lab"),
            (
                "postgres:///lab?host=/run&password=secret&user=ann",
                "postgres:///lab?host=/run&user=ann",
            ),
            ("postgres://ann@db/lab", "postgres://ann@db/lab"),
            ("first-look", "first-look"),
        ];
        for (word, kept) in cases {
            assert_eq!(without_password(word), kept);
        }
    }
}
