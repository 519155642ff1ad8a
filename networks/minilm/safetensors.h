// Reads files in the safetensors format: eight bytes, the length of a header as a little-endian
// integer; the header, a JSON object of each tensor's "dtype", "shape" and "data_offsets"; then the
// elements, row-major and little-endian (https://github.com/huggingface/safetensors, "Format").
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace ttbench {

using NamedTensors = std::map<std::string, at::Tensor>;

// All tensors of F32, F64 and I64, in memory of their own; those of other types are left out.
// Throws std::runtime_error, one sentence that names the file, for what cannot be read and for what
// is no such file.
NamedTensors ReadSafetensors(const std::string& path);

}  // namespace ttbench
