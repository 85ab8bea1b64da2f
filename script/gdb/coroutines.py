# Prints the coroutines that wait in a process, or did when a core was written: for each the functions,
# the one that waits first, then those that wait for it; the kind of task that is waited for; and where
# the coroutine belongs. For gdb:
#
#   gdb -p PID -batch -x script/gdb/coroutines.py
#   gdb -batch -x script/gdb/coroutines.py PROGRAM CORE
#
# It needs the symbols of the program, and no debugging information. It knows frames by the two
# functions that each begins with, which g++ calls "f(...) [clone .actor]" and clang "f(...) [clone .resume]",
# and the promise behind these by its layout in workflow/detail/CoTask.h (CoFrame). An awaiter in a frame
# has the task of the coroutine and behind it the task that is awaited, whose virtual functions tell its
# type (workflow/detail/CoAwait.h).
import re
import struct

import gdb

WORD = 8
RESUMES = re.compile(r"^(.*) \[clone \.(?:actor|resume)\]")
# g++: "f(f(int)::_Z1fi.Frame*)".
OF_LIBRARY = re.compile(r"^workflow::co_(all|all_ended|any|within|each|scope)\b.*")
OF_FRAME = re.compile(r"^(?:.* )?(.+)\(\1(\(.*)::_Z\S*\.Frame ?\*\)")


CHUNK = 16 << 20  # bytes that are read at a time
PAGE = 4096


def mappings():
    """Begin, end and permissions of each region. Of a core, the regions that it has, without permissions."""
    files = gdb.execute("info files", to_string=True)
    if "core dump file" in files:
        for begin, end in re.findall(r"(0x\w+) - (0x\w+) is load", files):
            yield int(begin, 16), int(end, 16), ""
        return
    for line in gdb.execute("info proc mappings", to_string=True).splitlines():
        part = line.split()
        if len(part) > 4 and part[0].startswith("0x"):
            yield int(part[0], 16), int(part[1], 16), part[4]


def writable_memory():
    """The address and the bytes of what may contain frames."""
    inferior = gdb.selected_inferior()
    for begin, end, permissions in mappings():
        if permissions and not permissions.startswith("rw"):
            continue
        for at in range(begin, end, CHUNK):
            try:
                # A few words more, because a frame may go on in the next chunk.
                yield at, inferior.read_memory(at, min(CHUNK + 8 * WORD, end - at)).tobytes()
            except gdb.MemoryError:
                pass  # not every region of a core was written


def used_pages():
    """The address and the words of each page that is not empty, and of the beginning of the next."""
    empty = bytes(PAGE)
    for begin, memory in writable_memory():
        for at in range(0, min(len(memory), CHUNK), PAGE):
            if memory[at : at + PAGE] != empty:
                page = memory[at : at + PAGE + 8 * WORD]
                yield begin + at, struct.unpack("%dQ" % (len(page) // WORD), page)


def code_ranges():
    return [(begin, end) for begin, end, permissions in mappings() if "x" in permissions]


class Symbols:
    """The names of functions by their addresses."""

    def __init__(self):
        self.names = {}
        self.code = code_ranges()

    def at(self, address):
        if self.code and not any(begin <= address < end for begin, end in self.code):
            return ""
        if address not in self.names:
            try:
                text = gdb.execute("info symbol %#x" % address, to_string=True)
            except gdb.error:
                text = ""
            self.names[address] = text.split(" in section ")[0].strip()
        return self.names[address]


def find_frames():
    """Each frame's function, the promise of its caller, and its task, by the address of its own promise."""
    symbols = Symbols()
    lowest = min((begin for begin, _ in symbols.code), default=0x1000)
    highest = max((end for _, end in symbols.code), default=1 << 47)
    frames = {}
    for begin, words in used_pages():
        for i in range(len(words) - 4):
            resume, destroy = words[i], words[i + 1]
            if not (lowest <= resume < highest and lowest <= destroy < highest):
                continue
            match = RESUMES.match(symbols.at(resume))
            if not match or "[clone .destroy]" not in symbols.at(destroy):
                continue
            # CoFrame is {task, caller, address of the frame}; the address is odd if the functions are a
            # word behind it.
            where = words[i + 4]
            if where in (begin + i * WORD, begin + (i - 1) * WORD + 1):
                function = OF_LIBRARY.sub(r"wf::\1", OF_FRAME.sub(r"\1\2", match.group(1)))
                frames[begin + (i + 2) * WORD] = (function, words[i + 3], words[i + 2])
    return frames


LARGEST_FRAME = 4096  # bytes of a frame that are looked through
TASK = 32  # words of a task that are looked through for its group
TYPE = re.compile(r"^vtable for (.*?) \+ ")
MARKS = 7  # the lowest bits of SubTask::owner_
# What coroutines are given to, by the types of their tasks.
GIVEN_TO = [
    ("CoCall", "wf::task"),
    ("CoWaitedCall", "wf::wait"),
    ("CoHandler", "wf::serve"),
    ("CoStartedBranch", "WFScope::start"),
]


def words_at(address, count):
    """As many words from there as can be read."""
    while count > 0:
        try:
            memory = gdb.selected_inferior().read_memory(address, count * WORD).tobytes()
            return struct.unpack("%dQ" % count, memory)
        except gdb.MemoryError:
            count //= 2
    return ()


class Types:
    """The types of tasks by the addresses of their tables of virtual functions."""

    def __init__(self):
        self.names = {}

    def of(self, task):
        table = words_at(task, 1)
        if not table or table[0] % WORD != 0:
            return ""
        if table[0] not in self.names:
            try:
                text = gdb.execute("info symbol %#x" % table[0], to_string=True)
            except gdb.error:
                text = ""
            match = TYPE.match(text)
            self.names[table[0]] = match.group(1) if match else ""
        return self.names[table[0]]


def awaited_by(promise, task, types):
    """The task that the frame waits for, or 0.

    Awaiters of earlier waits may be left in the frame. The task that is awaited stands in the same
    series, or, if the coroutine was started alone, refers to the task of the coroutine (SubTask::owner_).
    """
    own = words_at(task, 3)
    if len(own) < 3:
        return 0
    owners = {task, own[2] & ~MARKS} - {0}
    words = words_at(promise, LARGEST_FRAME // WORD)
    for i in range(3, len(words) - 1):
        other = words[i + 1]
        if words[i] != task or other == task or other % WORD != 0:
            continue
        header = words_at(other, 3)
        if len(header) == 3 and header[2] & ~MARKS in owners and types.of(other):
            return other
    return 0


def place_of(task, types, groups):
    """Where a coroutine belongs: what it was given to, or whose group it is a branch of."""
    own = types.of(task)
    for word in words_at(task, TASK):
        if word in groups:
            return "in a group of " + groups[word]
    for name, function in GIVEN_TO:
        if re.match(r"workflow::%s<" % name, own):
            return "given to " + function
    return ""


def print_frames(frames):
    types = Types()
    callers = {caller for _, caller, _ in frames.values()}
    waiting = []  # the functions, the task and what it awaits
    for first in frames:
        if first in callers:
            continue
        chain, promise, task = [], first, frames[first][2]
        while promise in frames:
            function, promise, _ = frames[promise]
            chain.append(function)
        # A frame that was made and has not begun has no task.
        waiting.append((chain, task, awaited_by(first, task, types) if task else 0))
    # A coroutine that waits for a group is a frame of the library: its caller is the user's.
    groups = {
        awaited: chain[min(1, len(chain) - 1)]
        for chain, _, awaited in waiting
        if awaited and types.of(awaited) == "workflow::CoGroup"
    }
    for chain, task, awaited in waiting:
        parts = [" <- ".join(chain)]
        if awaited:
            parts.append("waits for " + types.of(awaited).replace("workflow::", ""))
        parts.append(place_of(task, types, groups) if task else "")
        print(", ".join(part for part in parts if part))
    print("%d coroutines wait" % len(waiting))


print_frames(find_frames())
