// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/tensor_input.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>

namespace vocabpipe {

TensorInput::TensorInput(const std::string& path, std::initializer_list<std::string_view> formats)
    : file_(path), open_(file_.open()) {
    const auto found = metadata().find("format");
    if (found != metadata().end() && std::ranges::count(formats, found->second) > 0) return;
    std::string expected;
    for (const std::string_view format : formats) {
        expected += (expected.empty() ? "\"" : " or \"") + std::string(format) + '"';
    }
    throw InputFileError(
        path + ": metadata: format is " +
        (found == metadata().end() ? "missing" : '"' + readable(found->second) + '"') +
        "; expected " + expected);
}

const StoredTensor& TensorInput::at(std::string_view name, StoredType type, size_t dims) const {
    const StoredTensor* tensor = file_.find(name);
    if (tensor == nullptr) {
        throw InputFileError(path() + ": tensor " + std::string(name) + " is missing");
    }
    if (tensor->type != type || tensor->shape.size() != dims) {
        throw InputFileError(path() + ": tensor " + std::string(name) + ": is " +
                             std::string(name_of(tensor->type)) + " " + shape_text(tensor->shape) +
                             "; it must be " + std::string(name_of(type)) + " with " +
                             std::to_string(dims) + (dims == 1 ? " dimension" : " dimensions"));
    }
    return *tensor;
}

void TensorInput::read_bytes(const StoredTensor& tensor, uint64_t offset,
                             std::span<std::byte> to) const {
    if (offset > tensor.end - tensor.begin || to.size() > tensor.end - tensor.begin - offset) {
        throw InputFileError(path() + ": tensor " + tensor.name + ": elements beyond its shape " +
                             shape_text(tensor.shape));
    }
    open_.read(tensor.begin + offset, to);
}

}  // namespace vocabpipe
