// Byte-level BPE for CPython: binds bpe.h to the module _native.
#pragma once
#include <nanobind/nanobind.h>

// Adds the class Bpe to the module.
void bind_bpe(nanobind::module_& module);
