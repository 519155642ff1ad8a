#include "networks/minilm/safetensors.h"

#include <ATen/ops/empty.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

namespace ttbench {
namespace {

const std::map<std::string, at::ScalarType> kTypes = {
    {"F32", at::kFloat}, {"F64", at::kDouble}, {"I64", at::kLong}};

// Reads the whole of the tensor; `size` is that of the data after the header.
at::Tensor ReadTensor(const nlohmann::json& entry, at::ScalarType type, int64_t size,
                      std::streamoff data, std::istream& file) {
  const auto shape = entry.at("shape").get<std::vector<int64_t>>();
  const auto [begin, end] = entry.at("data_offsets").get<std::pair<int64_t, int64_t>>();
  for (const int64_t length : shape) {
    if (length < 0) throw std::runtime_error("a length is negative");
  }
  if (begin < 0 || begin > end || end > size)
    throw std::runtime_error("its data is not in the file");
  at::Tensor tensor = at::empty(shape, type);
  if (static_cast<int64_t>(tensor.nbytes()) != end - begin) {
    throw std::runtime_error("its shape and its data differ in size");
  }
  file.seekg(data + begin);
  file.read(static_cast<char*>(tensor.mutable_data_ptr()), end - begin);
  return tensor;
}

}  // namespace

NamedTensors ReadSafetensors(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw std::runtime_error("cannot read " + path);
  const int64_t size = file.tellg();
  file.seekg(0);
  NamedTensors tensors;
  std::string name;
  try {
    unsigned char length_bytes[8] = {};
    file.read(reinterpret_cast<char*>(length_bytes), sizeof length_bytes);
    uint64_t length = 0;
    for (int i = 7; i >= 0; --i) length = length << 8 | length_bytes[i];
    if (!file || length > static_cast<uint64_t>(size) - sizeof length_bytes) {
      throw std::runtime_error("it has no whole header");
    }
    std::string header(length, ' ');
    file.read(header.data(), static_cast<std::streamsize>(length));
    const std::streamoff data = file.tellg();
    const nlohmann::json entries = nlohmann::json::parse(header);
    for (const auto& [key, entry] : entries.items()) {
      if (key == "__metadata__") continue;
      name = key;
      const auto type = kTypes.find(entry.at("dtype").get<std::string>());
      if (type == kTypes.end()) continue;
      tensors[key] = ReadTensor(entry, type->second, size - data, data, file);
    }
    if (!file) throw std::runtime_error("it ends too early");
  } catch (const std::exception& error) {
    throw std::runtime_error(path + " is no safetensors file" +
                             (name.empty() ? "" : ", at " + name) + ": " + error.what());
  }
  return tensors;
}

}  // namespace ttbench
