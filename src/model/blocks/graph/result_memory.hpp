// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"
#include "vocabpipe/tensor.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// What the results of a stage (ModelGraph::result()) are kept in until they are read: fp32, every
/// microbatch of the step.
class ResultMemory {
public:
    /// (rows, columns) in every microbatch.
    void add(const std::string& name, int64_t rows, int64_t columns) {
        results_.push_back({.name = name, .rows = rows, .columns = columns, .memory = {}});
    }
    /// Bytes of a microbatch.
    [[nodiscard]] int64_t bytes() const {
        int64_t sum = 0;
        for (const Result& of : results_) sum += of.bytes();
        return sum;
    }
    void begin_step(Device& device, int microbatches) {
        microbatches_ = microbatches;
        for (Result& of : results_) {
            const auto bytes = static_cast<uint64_t>(of.bytes() * microbatches);
            if (of.memory.size() < bytes) of.memory = device.allocate(bytes, "a stage's results");
        }
    }
    /// (rows, columns) of a microbatch.
    [[nodiscard]] Tensor of(std::string_view name, int microbatch) const {
        const Result& found = *find(name);
        return {found.memory.data() + microbatch * found.bytes(), found.rows, found.columns,
                DType::fp32};
    }
    /// (microbatches rows, columns) of the step; empty: there is no such result.
    [[nodiscard]] ConstTensor all(std::string_view name) const {
        const Result* const found = find(name);
        if (found == nullptr || found->memory.size() == 0) return {};
        return {found->memory.data(), microbatches_ * found->rows, found->columns, DType::fp32};
    }

private:
    struct Result {
        std::string name;
        int64_t rows, columns;
        DeviceMemory memory;

        [[nodiscard]] int64_t bytes() const { return rows * columns * size_of(DType::fp32); }
    };
    [[nodiscard]] const Result* find(std::string_view name) const {
        for (const Result& of : results_) {
            if (of.name == name) return &of;
        }
        return nullptr;
    }

    std::vector<Result> results_;
    int microbatches_ = 0;
};

}  // namespace vocabpipe
