// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/program.hpp"

#include <cstdint>
#include <iterator>
#include <string>

namespace vocabpipe {

/// Memory of the buffers of a rank's programs: an arena, which the programs share because they run
/// one at a time, or memory of the modules.
class StepMemory {
public:
    /// The device and the modules must outlive this.
    StepMemory(Device& device, const RankModules& modules, const StepSizes& sizes)
        : device_(device), modules_(modules), sizes_(sizes) {}

    /// Grows the arena for a program; errors name `what`. The arena's contents are lost.
    void reserve(uint64_t bytes, const std::string& what);
    [[nodiscard]] uint64_t arena_bytes() const { return arena_.size(); }
    /// Buffer ids refer to this program from now on. It must stay alive.
    void use(const Program& program) { program_ = &program; }

    /// Memory of a buffer; empty for kNoBuffer.
    [[nodiscard]] Bytes bytes(uint32_t buffer) const;
    /// Whether it holds gradients of a bucket, which are added up in place: the sum goes into the
    /// rank's own block of the buffer that it sends.
    [[nodiscard]] bool sums_in_place(uint32_t buffer) const;
    /// The memory that a communication cuts into row blocks: the whole bucket for a piece of it,
    /// because the blocks of a piece are not adjacent.
    [[nodiscard]] Bytes bytes_to_cut(uint32_t buffer) const;
    [[nodiscard]] Tensor tensor(uint32_t buffer, int64_t rows, int64_t cols, DType dtype) const {
        return {bytes(buffer).data(), rows, cols, dtype};
    }
    /// [rows, cols] in fp32, all rows that the buffer has.
    [[nodiscard]] Tensor per_token(uint32_t buffer, int64_t cols) const {
        return all_rows(buffer, cols, DType::fp32);
    }
    /// Factors of combine_softmax, [N, StepSizes::factors] in fp32.
    [[nodiscard]] Tensor factors(uint32_t buffer) const {
        return per_token(buffer, sizes_.factors);
    }
    /// Statistics of S of one or several shards, [times N, StepSizes::statistics] in fp32.
    [[nodiscard]] Tensor statistics(uint32_t buffer) const {
        return per_token(buffer, sizes_.statistics);
    }
    /// [N / t, h] or [N, h] in the run's type: this rank's rows of a boundary, or all rows.
    [[nodiscard]] Tensor boundary(uint32_t buffer) const {
        return all_rows(buffer, sizes_.hidden, sizes_.dtype);
    }
    /// [N, h] in fp32.
    [[nodiscard]] Tensor input_gradient(uint32_t buffer) const {
        return per_token(buffer, sizes_.hidden);
    }
    /// [N, v] in the run's type.
    [[nodiscard]] Tensor exp_logits(uint32_t buffer, int64_t tokens) const;

    /// Fills the arena with NaN.
    void poison();
    /// Fills a buffer with NaN if it lies in the arena, on devices of host memory.
    void poison(uint32_t buffer);

private:
    /// The buffer as rows of `cols` elements: as many as a microbatch of its length has.
    [[nodiscard]] Tensor all_rows(uint32_t buffer, int64_t cols, DType dtype) const {
        const Bytes memory = bytes(buffer);
        return {memory.data(), std::ssize(memory) / (cols * size_of(dtype)), cols, dtype};
    }
    [[nodiscard]] Bytes bucket(const Buffer& buffer) const;
    /// `use`: counted over all shared weights.
    [[nodiscard]] Bytes shared_gradient(size_t use) const;

    Device& device_;
    const RankModules& modules_;
    const StepSizes& sizes_;
    DeviceMemory arena_;
    const Program* program_ = nullptr;
};

}  // namespace vocabpipe
