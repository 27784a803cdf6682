// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/checkpoint/model_tensors.hpp"
#include "src/train/checkpoint/tensor_folder.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// Reads rectangles of a stored tensor of any type into memory of a device.
class RowReader {
public:
    /// `height`: rows of the tensor as this program holds it; where the file has it transposed, the
    /// length of a line.
    RowReader(Device& device, const FoundTensor& from, bool transposed, int64_t height)
        : device_(device),
          type_(from.tensor->type),
          begin_(from.tensor->begin),
          file_(from.file->open()),
          transposed_(transposed),
          height_(height) {}

    /// Fills `to`, a dense matrix of the device, fp32 or bf16, (held.rows.count, columns).
    void read(const HeldRows& held, Tensor to);

private:
    /// Rows [first, first + count) of the stored tensor.
    void read_rows(const HeldRows& held, int64_t first, int64_t count);
    /// The same for a tensor that the file has transposed: its lines are columns.
    void read_columns(const HeldRows& held, int64_t first, int64_t count);
    void read_at(int64_t element, std::span<std::byte> bytes) const;
    [[nodiscard]] size_t bytes_of(int64_t elements) const;

    Device& device_;
    StoredType type_;
    uint64_t begin_;
    InputFile file_;
    bool transposed_;
    int64_t height_;
    std::vector<float> staged_;
    std::vector<std::byte> raw_;
};

}  // namespace vocabpipe
