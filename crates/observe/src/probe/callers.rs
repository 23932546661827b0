//! Finds the callers of the function that made a system call, or was entered: return addresses on a
//! stack, each of which is believed only where the call before it leads to the function inside.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::bpf::ProgramStack;

/// A return address in a function is so far from its beginning at most.
const FUNCTION: u64 = 2048;

/// A part of a process's code.
struct Part {
    at: Range<u64>,
    inode: u64,
}

/// The code and the memory of one process.
struct Code {
    parts: Vec<Part>,
    memory: File,
}

impl Code {
    /// Returns that of a living process.
    fn of(process: u32) -> Option<Self> {
        let maps = std::fs::read(format!("/proc/{process}/maps")).ok()?;
        let parts = millstream_foreign::lines(&maps).lines().filter_map(part).collect();
        let memory = File::open(format!("/proc/{process}/mem")).ok()?;
        Some(Self { parts, memory })
    }

    /// Returns the inode of the file of an address of code.
    fn file(&self, address: u64) -> Option<u64> {
        self.parts.iter().find(|one| one.at.contains(&address)).map(|one| one.inode)
    }

    fn read<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.memory.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }

    /// Returns the address in the word at a distance from `at`, which an instruction names.
    fn slot(&self, at: u64, distance: &[u8]) -> Option<u64> {
        self.read(relative(at, distance)?).map(u64::from_le_bytes)
    }

    /// Returns whether the call before `back` leads to the function of `inside`, also by a stub of
    /// the linker. A call by a register may lead to another file.
    fn leads(&self, back: u64, inside: u64) -> bool {
        let leads = |to: u64| to <= inside && inside - to < FUNCTION;
        let call: Option<[u8; 6]> = back.checked_sub(6).and_then(|at| self.read(at));
        match call {
            Some([0xff, 0x15, distance @ ..]) => self.slot(back, &distance).is_some_and(leads),
            Some([_, 0xe8, distance @ ..]) => relative(back, &distance)
                .is_some_and(|to| leads(to) || self.behind_stub(to).is_some_and(leads)),
            Some([.., 0xff, 0xd0..=0xd7] | [.., 0xff, 0x50..=0x57, _]) => {
                self.file(back) != self.file(inside)
            }
            _ => false,
        }
    }

    /// Returns where a stub of the linker leads.
    fn behind_stub(&self, to: u64) -> Option<u64> {
        let stub: [u8; 11] = self.read(to)?;
        let begin = if stub.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) { 4 } else { 0 };
        let begin = if stub[begin] == 0xf2 { begin + 1 } else { begin };
        let distance = stub[begin..].strip_prefix(&[0xff, 0x25])?.get(..4)?;
        self.slot(to + begin as u64 + 6, distance)
    }

    /// Returns the return addresses on a stack, the innermost first, without those of the library
    /// that makes a system call. Those behind the top of the stack are of frame pointers.
    fn callers(&self, stack: &ProgramStack) -> Vec<u64> {
        let Some((&innermost, frames)) = stack.frames.split_first() else { return vec![] };
        let (direct, further) = stack.top.split_at(usize::from(stack.at_entry));
        let mut all: Vec<u64> = direct.to_vec();
        for &word in further {
            let inside = all.last().copied().unwrap_or(innermost);
            if self.file(word).is_some() && self.leads(word, inside) {
                all.push(word);
            }
        }
        let known = frames.iter().rposition(|one| all.contains(one));
        let rest = &frames[known.map_or(0, |at| at + 1)..];
        all.extend(rest.iter().take_while(|one| self.file(**one).is_some()));
        if stack.at_entry {
            return all;
        }
        let library = self.file(innermost);
        let within = all.iter().take_while(|one| self.file(**one) == library).count();
        if within < all.len() {
            all.drain(..within);
        }
        all
    }
}

/// Returns a part of `/proc/PID/maps` that is code.
fn part(line: &str) -> Option<Part> {
    let mut words = line.split_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let at = address(from)?..address(to)?;
    let is_code = words.next()?.contains('x');
    let inode = words.nth(2)?.parse().ok()?;
    is_code.then_some(Part { at, inode })
}

fn relative(at: u64, distance: &[u8]) -> Option<u64> {
    let distance = i32::from_le_bytes(distance.try_into().ok()?);
    at.checked_add_signed(distance.into())
}

/// The callers of stacks of many processes, found while these live.
#[derive(Default)]
pub(super) struct Callers {
    found: HashMap<(u32, ProgramStack), Vec<u64>>,
}

impl Callers {
    /// Looks at those stacks of a process that are new.
    pub(super) fn look<'a>(
        &mut self,
        process: u32,
        stacks: impl Iterator<Item = &'a ProgramStack>,
    ) {
        let is_new = |one: &&ProgramStack| !self.found.contains_key(&(process, (*one).clone()));
        let fresh: Vec<&ProgramStack> = stacks.filter(is_new).collect();
        if fresh.is_empty() {
            return;
        }
        if let Some(code) = Code::of(process) {
            let found = fresh.into_iter().map(|one| ((process, one.clone()), code.callers(one)));
            self.found.extend(found);
        }
    }

    /// Returns the callers of a stack, the innermost first; none where it was not looked at.
    pub(super) fn of(&self, process: u32, stack: &ProgramStack) -> &[u64] {
        self.found.get(&(process, stack.clone())).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A program at 0x1000 and a library at 0x3000, whose memory is a file.
    fn code() -> Code {
        let mut bytes = vec![0; 0x4000];
        let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
        let call = |from: i32, to: i32| [&[0xe8][..], &(to - from).to_le_bytes()].concat();
        // ask (0x1000) calls the library's read by a stub at 0x1800, whose slot says 0x3000.
        put(0x10fb, &call(0x1100, 0x1800));
        put(0x1800, &[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25]);
        put(0x1806, &(0x2000_i32 - 0x180a).to_le_bytes());
        put(0x2000, &0x3000_u64.to_le_bytes());
        // serve (0x1200) calls ask, the slot at 0x2008 says so; main (0x1400) calls serve.
        put(0x12fa, &[0xff, 0x15]);
        put(0x12fc, &(0x2008_i32 - 0x1300).to_le_bytes());
        put(0x2008, &0x1000_u64.to_le_bytes());
        put(0x14fb, &call(0x1500, 0x1200));
        // The library's fread (0x3800) calls its read.
        put(0x38fb, &call(0x3900, 0x3000));
        // price (0x1600) calls something by a register; ask calls fread, too.
        put(0x16fe, &[0xff, 0xd0]);
        put(0x117b, &call(0x1180, 0x3800));
        let mut memory = tempfile::tempfile().unwrap();
        memory.write_all(&bytes).unwrap();
        let part = |at, inode| Part { at, inode };
        Code { parts: vec![part(0x1000..0x2000, 1), part(0x3000..0x4000, 2)], memory }
    }

    fn callers(top: &[u64], frames: &[u64]) -> Vec<u64> {
        let mut words = [0; 16];
        words[..top.len()].copy_from_slice(top);
        let stack = ProgramStack { top: words, frames: frames.to_vec(), at_entry: false };
        code().callers(&stack)
    }

    #[test]
    fn a_return_address_counts_where_its_call_leads_to_the_function_inside() {
        let at_read = 0x3020;
        assert_eq!(callers(&[7, 0x1100, 9, 0x1300, 0x1500], &[at_read]), [0x1100, 0x1300, 0x1500]);
        // What an earlier call left there leads elsewhere: main's does not lead to read.
        assert_eq!(callers(&[0x1500, 0x1300, 0x1100], &[at_read]), [0x1100]);
        assert_eq!(callers(&[0x1101, 0x2000, 0x16ff], &[at_read]), [0; 0]);
        assert_eq!(callers(&[0x1700], &[at_read]), [0x1700]);
        assert_eq!(callers(&[0x1100, 0x1700], &[at_read]), [0x1100]);
        // The library's own functions are passed over, and said where nothing follows them.
        assert_eq!(callers(&[0x3900, 0x1180], &[at_read]), [0x1180]);
        assert_eq!(callers(&[0x3900], &[at_read]), [0x3900]);
    }

    #[test]
    fn at_its_entry_a_function_returns_where_the_first_word_says() {
        let at_entry = |top: &[u64], frames: &[u64]| {
            let mut words = [0; 16];
            words[..top.len()].copy_from_slice(top);
            let stack = ProgramStack { top: words, frames: frames.to_vec(), at_entry: true };
            code().callers(&stack)
        };
        // Of price, whose call by a register of its own file says not where it leads.
        assert_eq!(at_entry(&[0x1700], &[0x1800]), [0x1700]);
        // Its own file is not passed over, and frames go on behind what the top says.
        assert_eq!(at_entry(&[0x1300, 9, 0x1500], &[0x1000]), [0x1300, 0x1500]);
        assert_eq!(at_entry(&[0x1700], &[0x1800, 0x1700, 0x1500]), [0x1700, 0x1500]);
    }

    #[test]
    fn frames_follow_what_the_top_of_the_stack_says() {
        let at_read = 0x3020;
        assert_eq!(callers(&[0x1100], &[at_read, 0x1300, 0x1500, 5]), [0x1100, 0x1300, 0x1500]);
        assert_eq!(
            callers(&[0x1100, 0x1300], &[at_read, 0x1300, 0x1500]),
            [0x1100, 0x1300, 0x1500]
        );
        // A frame pointer that is none leads nowhere.
        assert_eq!(callers(&[0x1100], &[at_read, 0x7777_7777, 0x1300]), [0x1100]);
        assert_eq!(callers(&[0x1100], &[]), [0; 0]);
    }

    #[test]
    fn maps_say_which_addresses_are_code() {
        let text = "7f23-7f28 r-xp 00026000 fe:00 326269 /usr/lib/libc.so.6";
        let found = part(text).unwrap();
        assert_eq!((found.at, found.inode), (0x7f23..0x7f28, 326269));
        assert!(part(&text.replace("r-xp", "r--p")).is_none());
        assert!(part("7f23 r-xp").is_none());
    }
}
