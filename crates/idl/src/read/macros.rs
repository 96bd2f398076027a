//! Macros and their expansion, with bounded time and memory.

use std::collections::{HashMap, HashSet};

use super::diagnostic::IdlDiagnostic;
use super::lexeme::Lexeme;
use super::preprocess::Token;
use super::source::{SourceSpan, Sources};

/// The most tokens of a run, counted when they are read and at each step of their expansion.
const MOST_TOKENS: usize = 2_000_000;
/// The deepest nesting of macros.
const DEEPEST: usize = 100;

/// The definition of a macro.
#[derive(Clone, Debug)]
pub(crate) struct Macro {
    /// `None` for one without parentheses.
    pub parameters: Option<Vec<String>>,
    pub body: Vec<Token>,
    /// Where it was defined; `None` on the command line.
    pub at: Option<SourceSpan>,
}

impl Macro {
    /// True if both are written alike.
    pub fn same(&self, other: &Macro, sources: &Sources) -> bool {
        let texts = |of: &Macro| of.body.iter().map(|token| sources.text(token.text).to_string()).collect::<Vec<_>>();
        self.parameters == other.parameters && texts(self) == texts(other)
    }
}

/// The defined macros.
pub(crate) struct Macros {
    by_name: HashMap<String, Macro>,
    /// How many more tokens are allowed.
    left: usize,
    /// Where macros were used, except for those in macros.
    pub used: HashSet<SourceSpan>,
}

impl Default for Macros {
    fn default() -> Self {
        Macros { by_name: HashMap::new(), left: MOST_TOKENS, used: HashSet::new() }
    }
}

impl Macros {
    pub fn define(&mut self, name: String, new: Macro) {
        self.by_name.insert(name, new);
    }

    pub fn forget(&mut self, name: &str) {
        self.by_name.remove(name);
    }

    pub fn get(&self, name: &str) -> Option<&Macro> {
        self.by_name.get(name)
    }

    pub fn defined(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Counts a token; an error when there are too many.
    pub fn spend(&mut self, at: SourceSpan) -> Result<(), IdlDiagnostic> {
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => {
                let error = IdlDiagnostic::at(at, format!("there are more than {MOST_TOKENS} words, macros expanded"));
                return Err(error.help("a macro may double itself at each step; or split the file"));
            }
        }
        Ok(())
    }

    /// Passes each token of `run`, with macros expanded, to `give`.
    pub fn expand(
        &mut self,
        run: &[Token],
        sources: &Sources,
        give: &mut dyn FnMut(Token),
    ) -> Result<(), IdlDiagnostic> {
        self.expand_within(run, sources, None, &mut Vec::new(), give)
    }

    /// `at`: where the outermost macro was used; `active`: those being expanded, which do not expand again.
    fn expand_within(
        &mut self,
        run: &[Token],
        sources: &Sources,
        at: Option<SourceSpan>,
        active: &mut Vec<String>,
        give: &mut dyn FnMut(Token),
    ) -> Result<(), IdlDiagnostic> {
        let mut index = 0;
        while let Some(token) = run.get(index) {
            index += 1;
            let place = at.unwrap_or(token.at);
            self.spend(place)?;
            let name = sources.text(token.text);
            let found = self.by_name.get(name).filter(|_| token.kind == Lexeme::Word);
            let Some(found) = found.filter(|_| !active.iter().any(|active| active == name)) else {
                give(Token { at: place, ..*token });
                continue;
            };
            if active.len() >= DEEPEST {
                return Err(IdlDiagnostic::at(place, format!("macros are nested more than {DEEPEST} deep")));
            }
            let body = match &found.parameters {
                None => found.body.clone(),
                Some(parameters) => {
                    let mut next = index;
                    while run.get(next).is_some_and(|token| token.kind == Lexeme::Comment) {
                        next += 1;
                    }
                    if run.get(next).is_none_or(|token| token.kind != Lexeme::Left) {
                        give(Token { at: place, ..*token });
                        continue;
                    }
                    let (arguments, end) = arguments(run, next).ok_or_else(|| {
                        IdlDiagnostic::at(place, format!("this use of the macro `{name}` has no `)`"))
                    })?;
                    index = end;
                    let none = parameters.is_empty() && arguments.iter().all(|argument| argument.is_empty());
                    if arguments.len() != parameters.len() && !none {
                        let (expected, counted) = (parameters.len(), arguments.len());
                        let error = IdlDiagnostic::at(
                            place,
                            format!("the macro `{name}` expects {expected}, but gets {counted}"),
                        );
                        let error = error.label("number of arguments");
                        return Err(match found.at {
                            Some(at) => error.other(at, "defined here"),
                            None => error,
                        });
                    }
                    let (parameters, body) = (parameters.clone(), found.body.clone());
                    let mut expanded = Vec::new();
                    for argument in arguments {
                        let mut words = Vec::new();
                        active.push(String::new());
                        self.expand_within(argument, sources, at, active, &mut |token| words.push(token))?;
                        active.pop();
                        expanded.push(words);
                    }
                    self.substitute(&body, &parameters, &expanded, sources, place)?
                }
            };
            if at.is_none() {
                self.used.insert(place);
            }
            active.push(name.to_string());
            self.expand_within(&body, sources, Some(place), active, give)?;
            active.pop();
        }
        Ok(())
    }

    fn substitute(
        &mut self,
        body: &[Token],
        parameters: &[String],
        arguments: &[Vec<Token>],
        sources: &Sources,
        at: SourceSpan,
    ) -> Result<Vec<Token>, IdlDiagnostic> {
        let mut words = Vec::new();
        for token in body {
            let text = sources.text(token.text);
            match parameters.iter().position(|parameter| token.kind == Lexeme::Word && parameter == text) {
                Some(which) => words.extend_from_slice(&arguments[which]),
                None => words.push(*token),
            }
            if words.len() > self.left {
                self.left = 0;
                self.spend(at)?;
            }
        }
        Ok(words)
    }
}

/// The arguments of a use with its parenthesis at `left`, and the index after its end.
fn arguments(run: &[Token], left: usize) -> Option<(Vec<&[Token]>, usize)> {
    let (mut depth, mut from, mut arguments) = (0, left + 1, Vec::new());
    for (index, token) in run.iter().enumerate().skip(left) {
        match token.kind {
            Lexeme::Left => depth += 1,
            Lexeme::Right => depth -= 1,
            _ => {}
        }
        let ends = depth == 0;
        if ends || (depth == 1 && token.kind == Lexeme::Comma) {
            arguments.push(&run[from..index]);
            from = index + 1;
        }
        if ends {
            return Some((arguments, index + 1));
        }
    }
    None
}
