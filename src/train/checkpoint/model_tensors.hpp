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

/// A tensor as Hugging Face stores it, or rows of one, which are a logical parameter or rows of one
/// (q, k and v, which this program holds as one matrix). What is said of rows is said of elements
/// where it is a vector.
struct ModelTensor {
    std::string name;
    int64_t first_row = 0;  ///< of the parameter
    int64_t rows = 0;
    int64_t file_row = 0;             ///< of the stored tensor
    std::vector<int64_t> shape;       ///< of the stored tensor, in files
    std::vector<int64_t> held_shape;  ///< of it [rows, cols] or [rows], as this program holds it
    bool transposed = false;          ///< Conv1D keeps [in, out], this program [out, in]
    /// Of a router: fp32 in every run, and nothing of it in the optimizer's file.
    bool correction_bias = false;
    [[nodiscard]] bool is_vector() const { return held_shape.size() == 1; }
};

/// Those of every logical parameter, by id, in the order of its rows.
[[nodiscard]] std::vector<std::vector<ModelTensor>> model_tensors(const ModelConfig& config);

/// A rectangle of a stored tensor, as this program holds it, that a rank has in consecutive rows of
/// a dense tensor of its own. Of a vector, rows of one element.
struct HeldRows {
    TensorShard::Range rows;                  ///< of the stored tensor
    std::vector<TensorShard::Range> columns;  ///< of it, those that the rank has of each row
    int64_t width = 1;                        ///< all columns that the stored tensor has
    int64_t before = 0;                       ///< rows of the rank's tensor before them
    bool of_vector = false;
    /// These rows of the rank's weight, master or moment; of a vector, rows of one element.
    [[nodiscard]] Tensor of(Tensor held) const;
};
/// In the order of the rank's rows; empty: it has none of them.
[[nodiscard]] std::vector<HeldRows> held_rows(const Parameter& parameter,
                                              const ModelTensor& tensor);
/// Of them those that this rank updates: rows of the masters and moments.
[[nodiscard]] std::vector<HeldRows> owned_rows(const Parameter& parameter,
                                               const ModelTensor& tensor);

/// What files carry besides weights, which nothing is computed with: the causal masks and rotary
/// frequencies of old ones.
[[nodiscard]] bool is_no_weight_of(std::string_view name, const ModelConfig& config);

/// What all names but the output weight's begin with, except in files of the model without it.
[[nodiscard]] std::string_view body_prefix(const ModelConfig& config);

/// Of an optimizer's file, whose tensors are as this program holds them: held_shape.
[[nodiscard]] inline std::string exp_avg_name(const std::string& name) {
    return "exp_avg/" + name;
}
[[nodiscard]] inline std::string exp_avg_sq_name(const std::string& name) {
    return "exp_avg_sq/" + name;
}
[[nodiscard]] inline std::string master_name(const std::string& name) {
    return "master/" + name;
}

/// Tensors of model.safetensors in the run's type, and of optimizer.safetensors: two moments and,
/// in bf16 runs, fp32 master weights.
[[nodiscard]] std::vector<StoredTensor> model_file_tensors(const ModelConfig& config);
[[nodiscard]] std::vector<StoredTensor> optimizer_file_tensors(const ModelConfig& config);

}  // namespace vocabpipe
