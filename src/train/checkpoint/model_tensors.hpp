// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/safetensors/format.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/tensor.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// A tensor as Hugging Face stores it, or rows of it, that hold a logical parameter or rows of one
/// (this program holds q, k and v as one matrix). In a vector, a row is an element.
struct ModelTensor {
    std::string name;
    int64_t first_row = 0;  ///< of the parameter
    int64_t rows = 0;
    int64_t file_row = 0;             ///< of the stored tensor
    int64_t file_step = 1;            ///< from one row to the next in the stored tensor
    std::vector<int64_t> shape;       ///< of the stored tensor, in files
    std::vector<int64_t> held_shape;  ///< [rows, cols] or [rows], as this program holds it
    bool transposed = false;          ///< Conv1D keeps [in, out], this program [out, in]
    /// A router's bias: fp32 in every run, and not in the optimizer's file.
    bool correction_bias = false;
    [[nodiscard]] bool is_vector() const { return held_shape.size() == 1; }
};

/// The tensors of every logical parameter, by id, in the order of its rows.
[[nodiscard]] std::vector<std::vector<ModelTensor>> model_tensors(const ModelConfig& config);

/// A rectangle of a stored tensor, as this program holds it, whose rows lie one after the other in
/// a dense tensor of the rank. A vector has rows of one element.
struct HeldRows {
    TensorShard::Range rows;                  ///< of the stored tensor
    std::vector<TensorShard::Range> columns;  ///< that the rank has of each row
    int64_t width = 1;                        ///< all columns that the stored tensor has
    int64_t before = 0;                       ///< rows of the rank's tensor that precede these
    bool of_vector = false;
    /// These rows of the rank's weight, master or moment.
    [[nodiscard]] Tensor of(Tensor held) const;
};
/// In the order of the rank's rows; empty if the rank holds none of the tensor.
[[nodiscard]] std::vector<HeldRows> held_rows(const Parameter& parameter,
                                              const ModelTensor& tensor);
/// The part of held_rows() that this rank updates: rows of the masters and moments.
[[nodiscard]] std::vector<HeldRows> owned_rows(const Parameter& parameter,
                                               const ModelTensor& tensor);

/// Whether a tensor of a file is no weight: the causal masks and rotary frequencies of old files.
[[nodiscard]] bool is_no_weight_of(std::string_view name, const ModelConfig& config);

/// Prefix of all names but the output weight's; files of the bare body lack it.
[[nodiscard]] std::string_view body_prefix(const ModelConfig& config);

/// Names in an optimizer's file, whose tensors have the shapes of this program: held_shape.
[[nodiscard]] inline std::string exp_avg_name(const std::string& name) {
    return "exp_avg/" + name;
}
[[nodiscard]] inline std::string exp_avg_sq_name(const std::string& name) {
    return "exp_avg_sq/" + name;
}
[[nodiscard]] inline std::string master_name(const std::string& name) {
    return "master/" + name;
}

/// Tensors of model.safetensors in the run's type.
[[nodiscard]] std::vector<StoredTensor> model_file_tensors(const ModelConfig& config);
/// [logical parameter] Its tensors of optimizer.safetensors: two moments and, in bf16 runs, fp32
/// master weights. A parameter that was frozen when a step was saved has none there.
[[nodiscard]] std::vector<std::vector<StoredTensor>> optimizer_file_tensors(
    const ModelConfig& config);

}  // namespace vocabpipe
