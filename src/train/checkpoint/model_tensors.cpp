// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/model_tensors.hpp"

#include "src/model/families/families.hpp"
#include "src/model/parameters.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace vocabpipe {

namespace {

/// Only matrices decay; a matrix may have a single row.
bool is_matrix(const LogicalParameter& p) {
    return p.weight_decay;
}

std::vector<ModelTensor> tensors_of(const LogicalParameter& p) {
    std::vector<FilePart> parts = p.parts;
    if (parts.empty()) parts.push_back({p.name, is_matrix(p) ? p.rows : p.cols});
    std::map<std::string, int64_t> file_rows;
    for (const FilePart& part : parts) file_rows[part.name] += part.count;
    std::vector<ModelTensor> tensors;
    int64_t first = 0;
    for (FilePart& part : parts) {
        const int64_t rows = file_rows.at(part.name);
        ModelTensor t{.name = std::move(part.name),
                      .first_row = first,
                      .rows = part.count,
                      .file_row = part.file_row,
                      .file_step = part.file_step};
        t.held_shape = is_matrix(p) ? std::vector{rows, p.cols} : std::vector{rows};
        t.shape = t.held_shape;
        t.transposed = p.transposed_in_files;
        t.correction_bias = p.correction_bias;
        if (t.transposed) std::reverse(t.shape.begin(), t.shape.end());
        first += part.count;
        tensors.push_back(std::move(t));
    }
    return tensors;
}

}  // namespace

std::vector<std::vector<ModelTensor>> model_tensors(const ModelConfig& config) {
    std::vector<std::vector<ModelTensor>> tensors;
    for (const LogicalParameter& p : logical_parameters(config)) tensors.push_back(tensors_of(p));
    return tensors;
}

Tensor HeldRows::of(Tensor held) const {
    if (of_vector) held = {held.data, held.cols, 1, held.dtype};
    return held.row_range(before, rows.count);
}

namespace {

/// The rank's rows [begin, end) that lie in the tensor.
std::vector<HeldRows> rows_between(int64_t begin, int64_t end, const TensorShard& shard,
                                   const ModelTensor& tensor) {
    const bool of_vector = tensor.is_vector();
    std::vector<HeldRows> held;
    int64_t before = 0;  // rows of the rank before the range
    for (const TensorShard::Range& range : of_vector ? shard.columns : shard.rows) {
        const int64_t to_logical = range.first - before;
        const int64_t first = std::max(std::max(begin, before) + to_logical, tensor.first_row);
        const int64_t last = std::min(std::min(end, before + range.count) + to_logical,
                                      tensor.first_row + tensor.rows);
        before += range.count;
        // Rows that are no neighbors in the file are rectangles of one row.
        const int64_t at_once = tensor.file_step == 1 ? last - first : 1;
        for (int64_t row = first; row < last; row += at_once) {
            held.push_back(
                {.rows = {(row - tensor.first_row) * tensor.file_step + tensor.file_row, at_once},
                 .columns = of_vector ? std::vector{TensorShard::Range{0, 1}} : shard.columns,
                 .width = of_vector ? 1 : tensor.held_shape[1],
                 .before = row - to_logical - begin,
                 .of_vector = of_vector});
        }
    }
    return held;
}

int64_t row_count(const Parameter& parameter, const ModelTensor& tensor) {
    return tensor.is_vector() ? parameter.weight.cols : parameter.weight.rows;
}

}  // namespace

std::vector<HeldRows> held_rows(const Parameter& parameter, const ModelTensor& tensor) {
    return rows_between(0, row_count(parameter, tensor), parameter.shard, tensor);
}

std::vector<HeldRows> owned_rows(const Parameter& parameter, const ModelTensor& tensor) {
    if (parameter.owned.count < 0) return held_rows(parameter, tensor);
    const int64_t row = tensor.is_vector() ? 1 : parameter.weight.cols;
    const int64_t begin = parameter.owned.first / row;
    return rows_between(begin, begin + parameter.owned.count / row, parameter.shard, tensor);
}

bool is_no_weight_of(std::string_view name, const ModelConfig& config) {
    const ModelFamily& family = model_family(config.family);
    // The files of DeepSeek-V3 repeat the embedding and the output layer in each depth.
    if (config.mtp_num_layers > 0 && name.starts_with(family.tensors.layers) &&
        (name.ends_with(".embed_tokens.weight") || name.ends_with(".shared_head.head.weight"))) {
        return true;
    }
    return std::ranges::any_of(family.no_weights,
                               [&](std::string_view end) { return name.ends_with(end); });
}

std::string_view body_prefix(const ModelConfig& config) {
    return model_family(config.family).tensors.body;
}

std::vector<StoredTensor> model_file_tensors(const ModelConfig& config) {
    std::vector<StoredTensor> stored;
    for (const std::vector<ModelTensor>& parts : model_tensors(config)) {
        for (const ModelTensor& t : parts) {
            if (t.file_row > 0) continue;  // its tensor is listed already
            const bool bf16 = config.dtype == DType::bf16 && !t.correction_bias;
            stored.push_back({.name = t.name,
                              .type = bf16 ? StoredType::BF16 : StoredType::F32,
                              .shape = t.shape});
        }
    }
    return stored;
}

std::vector<std::vector<StoredTensor>> optimizer_file_tensors(const ModelConfig& config) {
    std::vector<std::vector<StoredTensor>> all;
    for (const std::vector<ModelTensor>& parts : model_tensors(config)) {
        std::vector<StoredTensor>& stored = all.emplace_back();
        for (const ModelTensor& t : parts) {
            if (t.file_row > 0 || t.correction_bias) continue;  // listed already; has no moments
            stored.push_back({.name = exp_avg_name(t.name), .shape = t.held_shape});
            stored.push_back({.name = exp_avg_sq_name(t.name), .shape = t.held_shape});
            if (config.dtype != DType::fp32) {
                stored.push_back({.name = master_name(t.name), .shape = t.held_shape});
            }
        }
    }
    return all;
}

}  // namespace vocabpipe
