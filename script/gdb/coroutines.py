# Prints the coroutines that wait in a process, or did when a core was written: for each the functions,
# the one that waits first, then those that wait for it. For gdb:
#
#   gdb -p PID -batch -x script/gdb/coroutines.py
#   gdb -batch -x script/gdb/coroutines.py PROGRAM CORE
#
# It needs the symbols of the program, and no debugging information. It knows frames by the two
# functions that each begins with, which g++ calls "f(...) [clone .actor]" and clang "f(...) [clone .resume]",
# and the promise behind these by its layout in workflow/detail/CoTask.h (CoFrame).
import re
import struct

import gdb

WORD = 8
RESUMES = re.compile(r"^(.*) \[clone \.(?:actor|resume)\]")
# g++: "f(f(int)::_Z1fi.Frame*)".
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
    """Each frame's function and the promise of its caller, by the address of its own promise."""
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
            # CoFrame is {task, caller, address of the frame, ...}.
            address = words[i + 4]
            if address in (begin + i * WORD, begin + (i - 1) * WORD):
                function = OF_FRAME.sub(r"\1\2", match.group(1))
                frames[begin + (i + 2) * WORD] = (function, words[i + 3])
    return frames


def print_frames(frames):
    callers = {caller for _, caller in frames.values()}
    waiting = [promise for promise in frames if promise not in callers]
    for promise in waiting:
        line = []
        while promise in frames:
            function, promise = frames[promise]
            line.append(function)
        print(" <- ".join(line))
    print("%d coroutines wait" % len(waiting))


print_frames(find_frames())
