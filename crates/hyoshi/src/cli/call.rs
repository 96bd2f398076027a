//! `hyoshi call`: calls an operation of an object, with types from an IDL file.

mod raised;
mod shown;
mod types;
mod values;

use std::path::PathBuf;

use clap::Args;
use hyoshi_idl::tree::{DefinitionKind, Direction, IdlInterface};
use hyoshi_idl::{DefinitionId, ReadOptions, Specification, Type, read};
use hyoshi_model::Span;
use hyoshi_orb::{Object, ObjectRef, Orb, StubOperation, SystemException, TypeCode, TypeKind, Value};
use hyoshi_wire::ior::{IorEndpoint, ObjectUrl};
use serde_json::{Value as Json, json};

use super::load::span;
use super::tls::ClientTls;
use super::{CliError, Format, VerbOutcome, head, streams};
use raised::Raised;
use shown::OrderedJson;

#[derive(Debug, Args)]
#[command(
    after_help = "Each argument is one JSON value. Strings and enumerators need no quotes; octets are 0x1f2e:\n  \
                        hyoshi call corbaloc:iiop:1.2@host:2809/Tracker locate 7 --idl tracker.idl\n  \
                        hyoshi call file:tracker.ior correct '{\"x\": 1.5, \"y\": 2}' --idl tracker.idl"
)]
pub(super) struct Arguments {
    /// The object: IOR:..., corbaloc:..., corbaname:..., or a file that holds one
    #[arg(value_name = "REFERENCE|FILE|-")]
    reference: String,
    /// The operation, or an attribute; `_set_NAME` sets one
    operation: String,
    /// Values of the `in` and `inout` parameters, in order
    #[arg(allow_negative_numbers = true)]
    arguments: Vec<String>,
    /// The file that declares the interface
    #[arg(long, value_name = "FILE")]
    idl: Option<PathBuf>,
    /// Also search this directory for included files
    #[arg(short = 'I', long = "include", value_name = "DIR", requires = "idl")]
    includes: Vec<PathBuf>,
    /// The interface, such as Tracking::Tracker [default: the reference's; else the first of the file that has the
    /// operation and that the object supports]
    #[arg(long, value_name = "NAME", requires = "idl")]
    interface: Option<String>,
    /// Timeout of the call
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = span)]
    timeout: Span,
    #[command(flatten)]
    tls: ClientTls,
}

/// An operation, with the types that its messages contain.
struct Called {
    /// On the wire.
    name: String,
    oneway: bool,
    /// Parameters of the request: name and type.
    sent: Vec<(String, TypeCode)>,
    /// Values of the reply, in order.
    back: Vec<(String, TypeCode)>,
    /// Exceptions that it declares.
    raises: Vec<TypeCode>,
}

pub(super) fn call(arguments: &Arguments, format: Format) -> Result<VerbOutcome, CliError> {
    let orb = arguments
        .tls
        .client(Orb::builder())?
        .build()
        .map_err(|error| CliError::new(format!("cannot start the ORB: {error}")))?;
    let reference = super::ior::text(&arguments.reference)?;
    let reference = reference.trim();
    if let Err(error) = reference.parse::<ObjectUrl>() {
        return Err(super::ior::refusal(reference, &error, format));
    }
    let object = orb.resolve_unchecked::<dyn Object>(reference).map_err(|raised| {
        CliError::new(format!("cannot resolve `{reference}`: {raised}")).help(raised::help(&raised))
    })?;
    let object = object.as_ref().within(arguments.timeout);
    let specification = match &arguments.idl {
        Some(file) => {
            let options = ReadOptions { includes: arguments.includes.clone(), ..ReadOptions::default() };
            Some(read(file, &options).map_err(CliError::Idl)?)
        }
        None => None,
    };
    let called = match &specification {
        Some(specification) => {
            match interface(specification, &object, arguments)? {
                Ok(interface) => known(specification, interface, &arguments.operation)?,
                // The object raised instead of reporting its interface.
                Err(raised) => return answer(&unknown(&arguments.operation)?, Err(raised.into()), &object, format),
            }
        }
        None => unknown(&arguments.operation)?,
    };
    let values = passed(&called, &arguments.arguments, specification.as_ref())?;
    let (outcome, left) = invoke(&object, &called, &values);
    if left > 0 && specification.is_none() {
        streams::err(format_args!("the reply contains {left} octets; --idl FILE decodes them\n"));
    }
    answer(&called, outcome, &object, format)
}

/// The interface of the object: that of `--interface`, else that of the reference, else the only one of the file. Of
/// several with the operation, the object is asked which it supports.
fn interface(
    all: &Specification,
    object: &ObjectRef,
    arguments: &Arguments,
) -> Result<Result<DefinitionId, SystemException>, CliError> {
    let interfaces: Vec<_> = (0..all.definitions.len() as u32)
        .map(DefinitionId)
        .filter(|id| matches!(&all[*id].kind, DefinitionKind::Interface(interface) if !interface.forward))
        .collect();
    let names = || interfaces.iter().map(|id| scoped(all, *id)).collect::<Vec<_>>().join(", ");
    let of_id = |wanted: &str| interfaces.iter().copied().find(|id| all[*id].repository_id == wanted);
    if let Some(wanted) = &arguments.interface {
        let named: Vec<_> =
            interfaces.iter().copied().filter(|id| scoped(all, *id) == *wanted || all[*id].name == *wanted).collect();
        return match (named.as_slice(), of_id(wanted)) {
            ([one], _) => Ok(Ok(*one)),
            (_, Some(one)) => Ok(Ok(one)),
            ([], None) => Err(CliError::new(format!("the file declares no interface `{wanted}`"))
                .help(format!("it declares {}", names()))),
            _ => {
                Err(CliError::new(format!("ambiguous interface `{wanted}`")).help(format!("write one of {}", names())))
            }
        };
    }
    let said = &object.as_ref().ior().type_id;
    if let Some(id) = of_id(said) {
        return Ok(Ok(id));
    }
    match interfaces.as_slice() {
        [one] => return Ok(Ok(*one)),
        [] => {
            return Err(CliError::new("the file declares no interface")
                .help("name the IDL file that declares the object's interface"));
        }
        _ => {}
    }
    let operation = &arguments.operation;
    let able: Vec<_> = interfaces.iter().copied().filter(|id| known(all, *id, operation).is_ok()).collect();
    match able.as_slice() {
        [] => {
            return Err(CliError::new(format!("no interface of the file has an operation `{operation}`"))
                .help(format!("it declares {}", names())));
        }
        // What every object has is the same in each of them. Anything else is asked for: a oneway has no reply
        // to the wrong object.
        [first, ..] if of_every_object(operation).is_ok() => return Ok(Ok(*first)),
        _ => {}
    }
    for id in &able {
        match object.as_ref().is_a(&all[*id].repository_id) {
            Ok(true) => return Ok(Ok(*id)),
            Ok(false) => {}
            Err(raised) => return Ok(Err(raised)),
        }
    }
    let able = able.iter().map(|id| scoped(all, *id)).collect::<Vec<_>>().join(", ");
    Err(CliError::new(format!(
        "the object supports none of the file's interfaces with an operation `{operation}`: {able}"
    ))
    .help("name the IDL file that the server was built from, or force one with --interface"))
}

fn scoped(all: &Specification, id: DefinitionId) -> String {
    let definition = &all[id];
    definition.scope.iter().chain([&definition.name]).cloned().collect::<Vec<_>>().join("::")
}

/// The interface and its bases.
fn lineage(all: &Specification, id: DefinitionId) -> Vec<&IdlInterface> {
    let (mut next, mut seen, mut found) = (vec![id], Vec::new(), Vec::new());
    while let Some(id) = next.pop() {
        if let (DefinitionKind::Interface(interface), false) = (&all[id].kind, seen.contains(&id)) {
            seen.push(id);
            found.push(interface);
            next.extend(interface.bases.iter().rev());
        }
    }
    found
}

/// An operation or attribute that the interface has.
fn known(all: &Specification, id: DefinitionId, wanted: &str) -> Result<Called, CliError> {
    let code = |of: &Type| types::type_code(all, of);
    let raised = |ids: &[DefinitionId]| ids.iter().map(|id| types::of_definition(all, *id)).collect();
    let mut names = Vec::new();
    for interface in lineage(all, id) {
        for operation in &interface.operations {
            if operation.name == wanted {
                let result = operation.result.iter().map(|of| ("result".to_owned(), code(of)));
                let pick = |unwanted: Direction| {
                    let wanted = operation.parameters.iter().filter(move |one| one.direction != unwanted);
                    wanted.map(|one| (one.member.name.clone(), code(&one.member.of)))
                };
                return Ok(Called {
                    name: operation.name.clone(),
                    oneway: operation.oneway,
                    sent: pick(Direction::Out).collect(),
                    back: result.chain(pick(Direction::In)).collect(),
                    raises: raised(&operation.raises),
                });
            }
            names.push(operation.name.clone());
        }
        for attribute in &interface.attributes {
            let (name, of) = (&attribute.member.name, code(&attribute.member.of));
            let mut called = Called {
                name: format!("_get_{name}"),
                oneway: false,
                sent: Vec::new(),
                back: Vec::new(),
                raises: Vec::new(),
            };
            if wanted == name || wanted == called.name {
                called.back.push((name.clone(), of));
                called.raises = raised(&attribute.get_raises);
                return Ok(called);
            }
            names.push(name.clone());
            if !attribute.readonly {
                called.name = format!("_set_{name}");
                if wanted == called.name {
                    called.sent.push((name.clone(), of));
                    called.raises = raised(&attribute.set_raises);
                    return Ok(called);
                }
                names.push(called.name);
            }
        }
    }
    if let Ok(called) = of_every_object(wanted) {
        return Ok(called);
    }
    let near = names.iter().min_by_key(|name| strsim::damerau_levenshtein(name, wanted));
    let near = near.filter(|name| strsim::damerau_levenshtein(name, wanted) <= 2);
    let help = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("it has {}", names.join(", ")),
    };
    Err(CliError::new(format!("{} has no operation `{wanted}`", scoped(all, id))).help(help))
}

/// Operations of every object.
fn of_every_object(wanted: &str) -> Result<Called, ()> {
    let simple = |kind| TypeCode::build(|types| types.simple(kind));
    let (sent, back) = match wanted {
        "_is_a" => {
            (vec![("id".to_owned(), simple(TypeKind::String))], vec![("result".to_owned(), simple(TypeKind::Boolean))])
        }
        "_non_existent" => (vec![], vec![("result".to_owned(), simple(TypeKind::Boolean))]),
        _ => return Err(()),
    };
    Ok(Called { name: wanted.to_owned(), oneway: false, sent, back, raises: Vec::new() })
}

/// Without IDL: an operation of every object, or one without parameters and result.
fn unknown(wanted: &str) -> Result<Called, CliError> {
    if let Ok(called) = of_every_object(wanted) {
        return Ok(called);
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if wanted.is_empty() || !wanted.chars().all(is_name) {
        return Err(CliError::new(format!("invalid operation name `{wanted}`"))
            .help("write it as the IDL does, without its scope"));
    }
    Ok(Called { name: wanted.to_owned(), oneway: false, sent: Vec::new(), back: Vec::new(), raises: Vec::new() })
}

/// The arguments as values of their types.
fn passed(called: &Called, texts: &[String], specification: Option<&Specification>) -> Result<Vec<Value>, CliError> {
    let parameters = || {
        let all: Vec<_> = called.sent.iter().map(|(name, of)| format!("{name} ({of})")).collect();
        if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
    };
    if texts.len() != called.sent.len() {
        if specification.is_none() && called.sent.is_empty() {
            return Err(CliError::new(format!("the parameters of `{}` are unknown without its IDL", called.name))
                .help("name the file with --idl FILE; without it, only operations without arguments can be called"));
        }
        let (count, wanted) = (texts.len(), called.sent.len());
        let plural = if wanted == 1 { "" } else { "s" };
        let help = match called.name.strip_prefix("_get_") {
            Some(attribute) => format!("it returns the attribute; `_set_{attribute}` sets one that is not readonly"),
            None => format!("its parameters: {}", parameters()),
        };
        return Err(CliError::new(format!("`{}` needs {wanted} argument{plural}, not {count}", called.name)).help(help));
    }
    let named = |name: &str| specification.and_then(|all| type_named(all, name)).or_else(|| basic(name));
    let read = texts.iter().zip(&called.sent).enumerate().map(|(at, (text, (name, of)))| {
        values::from_text(text, of, &named).map_err(|wrong| {
            let place = if wrong.place.is_empty() { String::new() } else { format!(" at `{name}{}`", wrong.place) };
            CliError::new(format!("argument {}, `{name}` ({of}){place}: {}", at + 1, wrong.message)).help(format!(
                "parameters of `{}`: {}; structs are JSON objects, sequences are arrays",
                called.name,
                parameters()
            ))
        })
    });
    read.collect()
}

fn type_named(all: &Specification, name: &str) -> Option<TypeCode> {
    let mut found = (0..all.definitions.len() as u32).map(DefinitionId).filter(|id| {
        let is_type = !matches!(all[*id].kind, DefinitionKind::Module(_) | DefinitionKind::Constant(..));
        is_type && (scoped(all, *id) == name || all[*id].name == name)
    });
    found.next().map(|id| types::of_definition(all, id))
}

fn basic(name: &str) -> Option<TypeCode> {
    let kind = (0..64).filter_map(TypeKind::from_number).find(|kind| kind.name() == name)?;
    let simple = matches!(
        kind,
        TypeKind::Null
            | TypeKind::Short
            | TypeKind::Long
            | TypeKind::UShort
            | TypeKind::ULong
            | TypeKind::Float
            | TypeKind::Double
            | TypeKind::Boolean
            | TypeKind::Char
            | TypeKind::Octet
            | TypeKind::Any
            | TypeKind::TypeCode
            | TypeKind::String
            | TypeKind::LongLong
            | TypeKind::ULongLong
            | TypeKind::LongDouble
            | TypeKind::WChar
            | TypeKind::WString
    );
    simple.then(|| TypeCode::build(|types| types.simple(kind)))
}

/// The outcome, and how many octets of the reply nothing was known about.
fn invoke(object: &ObjectRef, called: &Called, values: &[Value]) -> (Result<Vec<Value>, Raised>, usize) {
    // Once a process: an operation's name is part of the program everywhere else.
    let name: &'static str = called.name.clone().leak();
    let arguments = |to: &mut hyoshi_orb::Encoder| {
        values.iter().zip(&called.sent).try_for_each(|(value, (_, of))| value.encode_as(of, to))
    };
    if called.oneway {
        return (object.as_ref().send(&StubOperation::oneway(name), arguments).map(|()| Vec::new()), 0);
    }
    let outcome = object.as_ref().call(&StubOperation::new(name), arguments, |from| {
        let values = called.back.iter().map(|(_, of)| Value::decode_as(of, from)).collect::<Result<_, _>>()?;
        Ok((values, from.left()))
    });
    match outcome {
        Ok((values, left)) => (Ok(values), left),
        Err(raised) => (Err(raised), 0),
    }
}

fn answer(
    called: &Called,
    outcome: Result<Vec<Value>, Raised>,
    object: &ObjectRef,
    format: Format,
) -> Result<VerbOutcome, CliError> {
    match outcome {
        Ok(values) => {
            let back = called.back.iter().zip(&values);
            let back: Vec<_> = back.map(|((name, of), value)| (name.clone(), shown::shown(value, of))).collect();
            match format {
                Format::Text => {
                    let mut text = String::new();
                    for (name, value) in &back {
                        let shown = match value {
                            OrderedJson::Plain(Json::String(plain)) => plain.clone(),
                            other => other.lines(),
                        };
                        if back.len() > 1 {
                            text += &format!("{name}: ");
                        }
                        text += &shown;
                        text.push('\n');
                    }
                    streams::out(text)?;
                }
                Format::Json => {
                    streams::out(answered(called, "reply", OrderedJson::Members(back)))?;
                }
            }
            Ok(VerbOutcome::Success)
        }
        Err(raised) => {
            let exception = raised.read(&called.raises);
            match format {
                Format::Text => streams::err(exception.text(&places(object))),
                Format::Json => streams::out(answered(called, "raised", exception.json()))?,
            }
            Ok(VerbOutcome::Negative)
        }
    }
}

/// The JSON form of an outcome.
fn answered(called: &Called, what: &str, outcome: OrderedJson) -> String {
    let head = [("hyoshi", json!(head("call"))), ("operation", json!(called.name))];
    let head = head.into_iter().map(|(name, value)| (name.to_owned(), value.into()));
    OrderedJson::Members(head.chain([(what.to_owned(), outcome)]).collect()).lines() + "\n"
}

/// The addresses in the reference.
fn places(object: &ObjectRef) -> Vec<String> {
    let address = |endpoint| match endpoint {
        IorEndpoint::Tcp { host, port, .. } | IorEndpoint::Tls { host, port, .. } if host.contains(':') => {
            format!("[{host}]:{port}")
        }
        IorEndpoint::Tcp { host, port, .. } | IorEndpoint::Tls { host, port, .. } => format!("{host}:{port}"),
        IorEndpoint::Unix { path, .. } => path,
    };
    object.as_ref().ior().iiop().flatten().flat_map(|profile| profile.endpoints()).map(address).collect()
}

impl From<SystemException> for Raised {
    fn from(raised: SystemException) -> Self {
        Raised::System(raised)
    }
}
