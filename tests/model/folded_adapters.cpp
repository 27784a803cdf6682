// SPDX-License-Identifier: Apache-2.0
#include "tests/model/folded_adapters.hpp"

#include "src/model/parameters.hpp"

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::testing {

namespace {

constexpr const char* kA = ".lora_A.weight";
constexpr const char* kB = ".lora_B.weight";
constexpr const char* kPrefix = "base_model.model.";

/// Rows of a logical tensor.
struct FileRows {
    std::string tensor;
    int64_t first = 0, count = 0, cols = 0;
};

/// The rows that hold a tensor of files, or throws.
FileRows rows_of_file(const std::vector<LogicalParameter>& parameters, const std::string& file) {
    for (const LogicalParameter& p : parameters) {
        if (p.name == file) return {p.name, 0, p.rows, p.cols};
        int64_t first = 0;
        FileRows found{p.name, -1, 0, p.cols};
        for (const FilePart& part : p.parts) {
            if (part.name == file) {
                if (found.first < 0) found.first = first;
                found.count += part.count;
            }
            first += part.count;
        }
        if (found.first >= 0) return found;
    }
    throw std::runtime_error("no tensor " + file);
}

/// Calls use(w, A, B) for every adapter.
void each_adapter(
    const ModelConfig& config,
    const std::function<void(const FileRows& w, const FileRows& a, const FileRows& b)>& use) {
    const std::vector<LogicalParameter> parameters = logical_parameters(config);
    for (const LogicalParameter& p : parameters) {
        if (!p.adapter || !p.name.ends_with(kA)) continue;
        std::vector<std::string> files;
        for (const FilePart& part : p.parts) files.push_back(part.name);
        for (const std::string& file : files) {
            const std::string stem = file.substr(0, file.size() - std::string(kA).size());
            const std::string module = stem.substr(std::string(kPrefix).size());
            use(rows_of_file(parameters, module + ".weight"), rows_of_file(parameters, file),
                rows_of_file(parameters, stem + kB));
        }
    }
}

size_t at(const FileRows& rows, int64_t row, int64_t column) {
    return static_cast<size_t>((rows.first + row) * rows.cols + column);
}

}  // namespace

ModelConfig with_adapters(ModelConfig config, int64_t rank, float alpha) {
    config.lora = {.rank = rank, .alpha = alpha};
    if (config.moe.experts == 0) return config;
    const TensorNames& names = tensor_names(config);
    for (const std::string& part : names.qkv_parts) config.lora.target_modules.push_back(part);
    config.lora.target_modules.push_back(names.proj);
    return config;
}

Tensors folded(const ModelConfig& config, const Tensors& weights) {
    const double scale = config.lora.scale();
    Tensors result = weights;
    each_adapter(config, [&](const FileRows& w, const FileRows& a, const FileRows& b) {
        std::vector<double>& sum = result.at(w.tensor);
        for (int64_t row = 0; row < w.count; ++row) {
            for (int64_t column = 0; column < w.cols; ++column) {
                for (int64_t k = 0; k < b.cols; ++k) {
                    sum[at(w, row, column)] += scale * weights.at(b.tensor)[at(b, row, k)] *
                                               weights.at(a.tensor)[at(a, k, column)];
                }
            }
        }
    });
    std::erase_if(result, [](const auto& one) { return one.first.starts_with(kPrefix); });
    return result;
}

Tensors unfolded_gradients(const ModelConfig& config, const Tensors& weights,
                           const Tensors& of_folded) {
    const double scale = config.lora.scale();
    Tensors result = of_folded;
    each_adapter(config, [&](const FileRows& w, const FileRows& a, const FileRows& b) {
        const std::vector<double>& dw = of_folded.at(w.tensor);
        std::vector<double>& da = result[a.tensor];
        std::vector<double>& db = result[b.tensor];
        da.resize(weights.at(a.tensor).size());
        db.resize(weights.at(b.tensor).size());
        for (int64_t row = 0; row < w.count; ++row) {
            for (int64_t column = 0; column < w.cols; ++column) {
                const double gradient = scale * dw[at(w, row, column)];
                for (int64_t k = 0; k < b.cols; ++k) {
                    da[at(a, k, column)] += gradient * weights.at(b.tensor)[at(b, row, k)];
                    db[at(b, row, k)] += gradient * weights.at(a.tensor)[at(a, k, column)];
                }
            }
        }
    });
    return result;
}

}  // namespace vocabpipe::testing
