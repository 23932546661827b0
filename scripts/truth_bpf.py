#!/usr/bin/env python3
"""A BPF program on the way of packets, for `make truth` and tests; what it does costs time and changes nothing.

  truth_bpf.py HOOK INTERFACE [--rounds N] [--leave]     prints `there`, and stays till it is killed

HOOK: ingress or egress (tcx), xdp. --rounds: of its loop, for each packet. --leave: it is attached without a link and stays
behind, so that nobody holds it.
"""
import argparse
import ctypes
import os
import platform
import socket
import struct
import time

CALL = {"x86_64": 321}.get(platform.machine(), 280)
LOAD, ATTACH, LINK = 5, 8, 28
# Of each hook: the type of its programs, the kind of attachment, and the answer that lets a packet pass.
HOOKS = {"ingress": (3, 46, -1), "egress": (3, 47, -1), "xdp": (6, 37, 2)}
LIBC = ctypes.CDLL(None, use_errno=True)


def bpf(command, *fields):
    attributes = struct.pack(*fields)
    done = LIBC.syscall(CALL, command, attributes, len(attributes))
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "bpf(2) command %d" % command)
    return done


def loaded(kind, attached, answer, rounds):
    """The descriptor of a program that counts to `rounds`."""
    code = b"".join(struct.pack("<BBhi", *one) for one in
                    [(0xb7, 2, 0, 0), (0x07, 2, 0, 1), (0xa5, 2, -2, rounds), (0xb7, 0, 0, answer), (0x95, 0, 0, 0)])
    text, licence = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
    return bpf(LOAD, "<IIQQIIQII16sII", kind, len(code) // 8, ctypes.addressof(text), ctypes.addressof(licence), 0, 0, 0, 0, 0,
               b"rounds", 0, attached if kind != 3 else 0)


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("hook", choices=HOOKS)
    parse.add_argument("interface")
    parse.add_argument("--rounds", type=int, default=1)
    parse.add_argument("--leave", action="store_true")
    options = parse.parse_args()
    kind, attached, answer = HOOKS[options.hook]
    program = loaded(kind, attached, answer, options.rounds)
    place = socket.if_nametoindex(options.interface)
    if options.leave:
        bpf(ATTACH, "<IIIIIIQ", place, program, attached, 0, 0, 0, 0)
    else:
        bpf(LINK, "<IIIIIIQ", program, place, attached, 0, 0, 0, 0)
    print("there", flush=True)
    time.sleep(0 if options.leave else 3600)


if __name__ == "__main__":
    main()
