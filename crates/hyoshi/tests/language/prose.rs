//! Prose of Markdown pages and of help texts: its sentences, and the words in them that plain English avoids.

/// Words that plain English avoids here, and what to write instead; several words must follow each other.
pub const ADVISED_AGAINST: &[(&[&str], &str)] = &[
    (&["tell", "tells", "told", "telling", "tellings"], "report, print, show, explain"),
    (&["say", "says", "said", "saying", "sayings"], "report, state, show"),
    (&["give", "gives", "gave", "given", "giving"], "return, provide, assign, set"),
    (&["take", "takes", "took", "taken", "taking"], "accept, use, need, last"),
    (&["come", "comes", "came", "coming"], "arrive, follow, result"),
    (&["go", "goes", "went", "gone", "going"], "continue, leave, move"),
    (&["stand for", "stands for", "stood for", "standing for"], "mean, represent"),
    (&["mind", "minds"], "check, observe"),
    (&["see to", "sees to"], "ensure"),
    (&["whom", "whose", "whoever", "whomever"], "name the thing"),
    (&["somebody", "someone", "nobody", "anybody", "everybody"], "name the user or program"),
    (&["others"], "other programs, other jobs, ..."),
    (&["in vain"], "without effect"),
    (&["at hand"], "available"),
    (&["comes round", "come round"], "recurs"),
    (&["is to be", "are to be", "was to be"], "must be"),
    (&["is no", "are no"], "is not a"),
    (&[", for it", ", for they", ", for there", ", for this", ", for nothing"], "because"),
];

/// A piece of text that ends where its paragraph, item, cell or heading ends.
pub type Block = String;

/// The blocks of a Markdown page without code: fenced, indented and in spans.
pub fn markdown(page: &str) -> Vec<Block> {
    let mut blocks = Blocks::default();
    let (mut fence, mut after_blank, mut in_list) = (None, true, false);
    for line in page.lines() {
        let trimmed = line.trim();
        let mark = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => {
                fence = Some(mark);
                blocks.end();
                continue;
            }
            (Some(open), mark) => {
                if mark == Some(open) {
                    fence = None;
                }
                continue;
            }
            (None, None) => {}
        }
        let indented = line.starts_with("    ") && !in_list && after_blank;
        let is_item = item(trimmed);
        after_blank = trimmed.is_empty() || indented;
        if trimmed.is_empty() || indented {
            blocks.end();
            continue;
        }
        in_list = is_item.is_some() || (in_list && line.starts_with(' '));
        if trimmed.starts_with('|') {
            blocks.end();
            for cell in cells(trimmed) {
                blocks.add(cell);
                blocks.end();
            }
        } else if trimmed.starts_with('#') {
            blocks.end();
            blocks.add(trimmed.trim_start_matches('#'));
            blocks.end();
        } else if !trimmed.starts_with("<!--") {
            if is_item.is_some() {
                blocks.end();
            }
            blocks.add(is_item.unwrap_or(trimmed));
        }
    }
    blocks.end();
    blocks.all.iter().map(|block| without_links(&without_code(block))).collect()
}

/// The cells of a table's row: a bar within a code span or after a backslash separates none.
fn cells(row: &str) -> Vec<&str> {
    let (mut cells, mut from, mut in_code, mut before) = (Vec::new(), 0, false, ' ');
    for (at, sign) in row.char_indices() {
        if sign == '`' {
            in_code = !in_code;
        } else if sign == '|' && !in_code && before != '\\' {
            cells.push(&row[from..at]);
            from = at + 1;
        }
        before = sign;
    }
    cells.push(&row[from..]);
    cells
}

/// The text of a list's item.
fn item(line: &str) -> Option<&str> {
    let number = line.trim_start_matches(|sign: char| sign.is_ascii_digit());
    let numbered = if number.len() < line.len() { number.strip_prefix(". ") } else { None };
    numbered.or_else(|| ["- ", "* ", "+ "].into_iter().find_map(|mark| line.strip_prefix(mark)))
}

/// The blocks of a help text as clap prints it: one for each verb, flag and paragraph.
pub fn help(text: &str) -> Vec<Block> {
    let mut blocks = Blocks::default();
    for line in text.lines() {
        let trimmed = line.trim();
        // Commands are examples, at two spaces.
        if trimmed.is_empty() || trimmed.starts_with("Usage:") || line.starts_with("  hyoshi ") {
            blocks.end();
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        // A name, then its text at the same line or below.
        let is_name = (1..=6).contains(&indent) && (trimmed.starts_with(['-', '<', '[']) || trimmed.contains("  "));
        if is_name || trimmed.starts_with('[') {
            blocks.end();
            blocks.add(trimmed.split_once("  ").map_or("", |(_, text)| text));
        } else if indent == 0 && trimmed.ends_with(':') {
            blocks.end();
        } else {
            let is_item = item(trimmed);
            if is_item.is_some() {
                blocks.end();
            }
            blocks.add(is_item.unwrap_or(trimmed));
        }
    }
    blocks.end();
    // Defaults and possible values in brackets are no part of the sentence before them.
    let parts = blocks.all.iter().flat_map(|block| block.split(" ["));
    parts.map(without_code).collect()
}

#[derive(Default)]
struct Blocks {
    all: Vec<Block>,
    open: String,
}

impl Blocks {
    fn add(&mut self, text: &str) {
        if !self.open.is_empty() {
            self.open.push(' ');
        }
        self.open.push_str(text.trim());
    }

    fn end(&mut self) {
        let open = std::mem::take(&mut self.open);
        if !open.is_empty() {
            self.all.push(open);
        }
    }
}

/// Replaces each code span by one word, so that a sentence keeps its length.
pub fn without_code(text: &str) -> String {
    if text.matches('`').count() % 2 == 1 {
        return text.to_owned();
    }
    let pieces = text.split('`').enumerate();
    pieces.map(|(number, piece)| if number % 2 == 1 && !piece.is_empty() { "CODE" } else { piece }).collect()
}

/// Drops the targets of `[text](target)`, and pictures.
fn without_links(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::new();
    while let Some(start) = rest.find("](") {
        let Some(end) = rest[start..].find(')') else { break };
        kept.push_str(&rest[..start]);
        rest = &rest[start + end + 1..];
    }
    kept.push_str(rest);
    kept.replace(['[', ']', '*'], "")
}

/// The sentences of a block.
pub fn sentences(block: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let mut from = 0;
    for (at, sign) in block.char_indices() {
        let rest = &block[at + sign.len_utf8()..];
        let mut next = rest.chars();
        let ends = matches!(sign, '.' | '!' | '?' | '\n') && next.next().is_none_or(char::is_whitespace);
        // "e.g. this" and "no. 5" go on.
        if sign == '\n' || (ends && rest.trim_start().starts_with(|sign: char| !sign.is_lowercase())) {
            all.push(block[from..=at].trim());
            from = at + sign.len_utf8();
        }
    }
    all.push(block[from..].trim());
    all.retain(|sentence| !sentence.is_empty());
    all
}

/// How many words a sentence has: what spaces separate and contains a letter or a digit.
pub fn length(sentence: &str) -> usize {
    sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

/// The advised-against words of a sentence, each with its remedy; repeated words repeat.
pub fn advised_against(sentence: &str) -> Vec<(&'static str, &'static str)> {
    let text = plain(sentence);
    let mut found = Vec::new();
    for (words, remedy) in ADVISED_AGAINST {
        for word in *words {
            let wanted = plain(word);
            // "There is no key X" is plain.
            let is_plain = |at: usize| word.ends_with(" no") && text[..at].ends_with(" there");
            let times = text.match_indices(&wanted).filter(|(at, _)| !is_plain(*at)).count();
            found.extend(std::iter::repeat_n((*word, *remedy), times));
        }
    }
    found
}

/// Lower case, one space around each word and comma.
fn plain(text: &str) -> String {
    let mut plain = String::from(" ");
    for sign in text.chars() {
        if sign.is_alphanumeric() || sign == '\'' || sign == '-' || sign == '_' {
            plain.extend(sign.to_lowercase());
        } else {
            if !plain.ends_with(' ') {
                plain.push(' ');
            }
            if sign == ',' {
                plain.push_str(", ");
            }
        }
    }
    plain.push(' ');
    plain
}
