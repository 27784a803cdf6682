// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/program.hpp"

#include <cstdint>
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
    /// N, tokens of a microbatch.
    [[nodiscard]] int64_t tokens() const { return sizes_.tokens; }
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
    /// [times N, cols] in fp32.
    [[nodiscard]] Tensor per_token(uint32_t buffer, int64_t cols, int64_t times = 1) const {
        return tensor(buffer, times * sizes_.tokens, cols, DType::fp32);
    }
    /// Statistics of S, [times N, StepSizes::statistics] in fp32.
    [[nodiscard]] Tensor statistics(uint32_t buffer, int64_t times = 1) const {
        return per_token(buffer, sizes_.statistics, times);
    }
    /// [N / t, h] in the run's type: this rank's rows of a boundary.
    [[nodiscard]] Tensor boundary(uint32_t buffer) const {
        return tensor(buffer, sizes_.boundary_rows(), sizes_.hidden, sizes_.dtype);
    }
    /// [N, h] in the run's type.
    [[nodiscard]] Tensor all_rows(uint32_t buffer) const {
        return tensor(buffer, sizes_.tokens, sizes_.hidden, sizes_.dtype);
    }
    /// [N, h] in fp32.
    [[nodiscard]] Tensor input_gradient(uint32_t buffer) const {
        return per_token(buffer, sizes_.hidden);
    }
    /// [N, v] in the run's type.
    [[nodiscard]] Tensor exp_logits(uint32_t buffer) const;

    /// Fills the arena with NaN.
    void poison();
    /// Fills a buffer with NaN if it lies in the arena, on devices of host memory.
    void poison(uint32_t buffer);

private:
    [[nodiscard]] Bytes bucket(const Buffer& buffer) const;

    Device& device_;
    const RankModules& modules_;
    const StepSizes& sizes_;
    DeviceMemory arena_;
    const Program* program_ = nullptr;
};

}  // namespace vocabpipe
