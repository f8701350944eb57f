"""Shows tensors in gdb: `source .../trireme.py`, then `p x` of any `tri_tensor *` tells its type,
name, the operation and line that made it, and its first values. A step tensor's handle is not
an address, so gdb cannot look by itself: it calls tri_tensor_debug in the program, which changes nothing."""
import gdb
import gdb.printing


class TensorPrinter:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        word = int(self.value)
        try:
            text = gdb.parse_and_eval(
                f"((const char *(*)(const void *))tri_tensor_debug)((const void *){word})"
            )
            return f"(tri_tensor *) {word:#x} {text.string()}"
        except gdb.error as reason:  # a core file, or a program that does not run yet
            return f"(tri_tensor *) {word:#x} ({reason})"


class TensorPrinters(gdb.printing.PrettyPrinter):
    def __call__(self, value):
        kind = value.type.strip_typedefs()
        if kind.code == gdb.TYPE_CODE_PTR and str(kind.target().unqualified()) in (
            "tri_tensor",
            "struct tri_tensor",
        ):
            return TensorPrinter(value)
        return None


gdb.printing.register_pretty_printer(None, TensorPrinters("trireme"), replace=True)
