//! What `hyoshi idl` makes of `tracking.idl`, and a servant.
#![allow(dead_code)]

#[path = "tracking_idl.rs"]
mod tracking_idl;

use hyoshi_orb::SystemException;
pub use tracking_idl::tracking::*;

/// A servant: knows targets below 100, calls subscribers back at once.
#[derive(Default)]
pub struct Yard {
    pub hints: std::sync::Mutex<Vec<String>>,
    pub heard: hyoshi_os::Wake,
}

impl Named for Yard {
    fn name(&self) -> Result<String, SystemException> {
        Ok("yard ä".to_owned())
    }
}

impl Tracker for Yard {
    fn locate(&self, id: u32) -> Result<Position, LocateError> {
        match id {
            0..100 => Ok(Position { x: f64::from(id), y: 0.5 }),
            666 => panic!("a panic that the test expects"),
            900..1000 => {
                std::thread::sleep(std::time::Duration::from_millis(u64::from(id) - 800));
                Ok(Position::default())
            }
            _ => Err(UnknownTarget { id }.into()),
        }
    }
    fn hint(&self, note: &str, _: &[u8]) -> Result<(), SystemException> {
        self.hints.lock().unwrap().push(note.to_owned());
        self.heard.post();
        Ok(())
    }
    fn echo(&self, raw: &[u8]) -> Result<Vec<u8>, SystemException> {
        Ok(raw.to_vec())
    }
    fn nothing(&self) -> Result<(), SystemException> {
        Ok(())
    }
    fn swap(&self, p: &mut Position) -> Result<(i32, String), SystemException> {
        let was = format!("{} {}", p.x, p.y);
        (p.x, p.y) = (p.y, p.x);
        Ok((7, was))
    }
    fn subscribe(&self, who: Option<&CallbackStub>) -> Result<(), SystemException> {
        who.map_or(Ok(()), |who| who.moved(1, &Position { x: 1.0, y: 2.0 }))
    }
}
