"""Instructions of one basic block -> LLVM IR: registers, operands and one module a kind of instruction."""
