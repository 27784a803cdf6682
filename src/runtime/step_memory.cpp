// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/step_memory.hpp"

#include <cstring>
#include <iterator>
#include <vector>

namespace vocabpipe {

void StepMemory::reserve(uint64_t bytes, const std::string& what) {
    if (bytes <= arena_.size()) return;
    arena_ = {};  // free first, so that both never exist at once
    arena_ = device_.allocate(bytes, what);
}

Bytes StepMemory::bytes(uint32_t buffer) const {
    if (buffer == kNoBuffer) return {};
    const Buffer& b = program_->buffers[buffer];
    switch (b.space) {
        case Buffer::Space::arena:
            return {arena_.data() + b.offset, b.bytes};
        case Buffer::Space::bucket_gradients:
        case Buffer::Space::bucket_weights:
        case Buffer::Space::own_gradients:
        case Buffer::Space::own_weights:
            return bucket(b).subspan(b.offset, b.bytes);
        case Buffer::Space::piece:  // its place is that of the whole
            return {};
        case Buffer::Space::shared_gradient:
            return shared_gradient(b.bucket);
        case Buffer::Space::embedding_gradient:
            return {modules_.input->parameters().front().gradient.as<std::byte>(), b.bytes};
        case Buffer::Space::output_gradient:
            return {modules_.output->parameters().front().gradient.as<std::byte>(), b.bytes};
    }
    return {};
}

bool StepMemory::sums_in_place(uint32_t buffer) const {
    return buffer != kNoBuffer &&
           program_->buffers[buffer].space == Buffer::Space::bucket_gradients;
}

Bytes StepMemory::bytes_to_cut(uint32_t buffer) const {
    return sums_in_place(buffer) ? bucket(program_->buffers[buffer]) : bytes(buffer);
}

Bytes StepMemory::shared_gradient(size_t use) const {
    auto weight = sizes_.shared_weights.begin();
    for (; use >= weight->uses.size(); ++weight) use -= weight->uses.size();
    const SharedWeight::Use& of = weight->uses[use];
    const Parameter& parameter =
        modules_.stages[static_cast<size_t>(of.stage)]->parameters()[of.parameter];
    return {parameter.gradient.as<std::byte>(), static_cast<size_t>(weight->bytes)};
}

Bytes StepMemory::bucket(const Buffer& buffer) const {
    const RankBucket of = modules_.step->bucket(buffer.bucket);
    const bool gradients = buffer.space == Buffer::Space::bucket_gradients ||
                           buffer.space == Buffer::Space::own_gradients;
    return gradients ? of.gradients : of.weights;
}

Tensor StepMemory::exp_logits(uint32_t buffer, int64_t tokens) const {
    const int64_t cols = std::ssize(bytes(buffer)) / size_of(sizes_.dtype) / tokens;
    return tensor(buffer, tokens, cols, sizes_.dtype);
}

void StepMemory::poison() {
    const std::vector<std::byte> nan(arena_.size(), std::byte{0xff});
    device_.upload(nan, arena_.data());
}

void StepMemory::poison(uint32_t buffer) {
    if (program_->buffers[buffer].space != Buffer::Space::arena) return;
    const Bytes dead = bytes(buffer);
    std::memset(dead.data(), 0xff, dead.size());  // NaN in every type
}

}  // namespace vocabpipe
