//! Operations that every object has (CORBA 3.3 part 1, 8.3; on the wire part 2, 9.4.2).

use hyoshi_wire::{Decode, Encode, SystemException, SystemKind};
use std::borrow::Cow;

use super::servant::Servant;
use crate::call::Call;
use crate::minor;

/// Carries out such an operation; `None` if it is another.
#[cold]
pub(crate) fn special(servant: &Servant, call: &mut Call<'_>) -> Option<Result<(), SystemException>> {
    Some(match call.operation() {
        "_is_a" => Cow::<str>::decode(&mut call.arguments())
            .map_err(Into::into)
            .and_then(|id| call.reply::<_, SystemException>(Ok(servant.is_a(&id)), |yes, to| yes.encode(to))),
        // It was found, so it exists. The second name is that of CORBA 2.0.
        "_non_existent" | "_not_existent" => call.reply::<_, SystemException>(Ok(false), |no, to| no.encode(to)),
        "_repository_id" => call.reply::<_, SystemException>(Ok(servant.interface()), |id, to| id.encode(to)),
        "_interface" => Err(SystemKind::IntfRepos.not_done(minor::NO_REPOSITORY)),
        // Nil: the object has no component.
        "_component" => call.reply::<_, SystemException>(Ok(()), |(), to| {
            "".encode(to)?;
            to.length(0)
        }),
        _ => return None,
    })
}
