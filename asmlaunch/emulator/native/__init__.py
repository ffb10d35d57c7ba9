"""Native helpers of the emulator, built as LLVM IR: memory accesses with their checks, matrix cores, the wave loop."""
