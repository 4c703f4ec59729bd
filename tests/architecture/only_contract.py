"""The wall that import-linter lacks: a package may import what is named, the standard library, and nothing else."""

from __future__ import annotations

import sys
from typing import Any

import grimp
from importlinter import Contract, ContractCheck, fields, output


class OnlyContract(Contract):
    """What `package` imports directly is the standard library, the package itself, or one of `allowed`.

    An allow-list fails for a dependency that nobody has thought of yet; a list of forbidden ones does not.
    """

    type_name = "only"

    # Fields here, plain values once import-linter has read the settings.
    package: Any = fields.StringField()
    allowed: Any = fields.SetField(subfield=fields.StringField())

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:
        known = {self.package, *self.allowed, *sys.stdlib_module_names}
        broken = [
            (importer, imported)
            for importer in sorted({self.package} | graph.find_descendants(self.package))
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if imported.partition(".")[0] not in known
        ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        output.print_error(
            f"{self.package} may import the standard library and {', '.join(sorted(self.allowed))}, but:", bold=False
        )
        for importer, imported in check.metadata["broken"]:
            output.print_error(f"-   {importer} -> {imported}", bold=False)
        output.new_line()
