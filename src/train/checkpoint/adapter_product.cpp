// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/adapter_product.hpp"

#include "src/model/blocks/adapter.hpp"
#include "src/train/checkpoint/stored_elements.hpp"

#include <algorithm>
#include <string_view>

namespace vocabpipe {

namespace {

/// All elements, in the order of the file.
std::vector<double> elements_of(const FoundTensor& of) {
    std::vector<std::byte> bytes(of.tensor->end - of.tensor->begin);
    of.file->open().read(of.tensor->begin, bytes);
    std::vector<double> values(bytes.size() / item_size(of.tensor->type));
    with_elements(of.tensor->type, bytes.data(), [&](const auto& element) {
        for (size_t i = 0; i < values.size(); ++i) values[i] = element(static_cast<int64_t>(i));
    });
    return values;
}

std::vector<double> transpose(const std::vector<double>& matrix, int64_t rows, int64_t columns) {
    std::vector<double> result(matrix.size());
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < columns; ++column) {
            result[static_cast<size_t>(column * rows + row)] =
                matrix[static_cast<size_t>(row * columns + column)];
        }
    }
    return result;
}

}  // namespace

AdapterProduct::AdapterProduct(const FoundTensor& a, const FoundTensor& b, float scale,
                               bool transposed)
    : rank_(a.tensor->shape[0]),
      columns_(transposed ? b.tensor->shape[0] : a.tensor->shape[1]),
      left_(transposed ? transpose(elements_of(a), rank_, a.tensor->shape[1]) : elements_of(b)),
      right_(transposed ? transpose(elements_of(b), columns_, rank_) : elements_of(a)) {
    for (double& value : left_) value *= scale;
}

void AdapterProduct::add(int64_t first, std::span<float> values) const {
    std::vector<double> sums(static_cast<size_t>(columns_));
    for (size_t done = 0; done < values.size();) {
        const int64_t row = (first + static_cast<int64_t>(done)) / columns_;
        const int64_t column = (first + static_cast<int64_t>(done)) % columns_;
        const std::span<float> part = values.subspan(done).first(
            std::min(values.size() - done, static_cast<size_t>(columns_ - column)));
        std::copy(part.begin(), part.end(), sums.begin());
        for (int64_t k = 0; k < rank_; ++k) {
            const double factor = left_[static_cast<size_t>(row * rank_ + k)];
            const double* const from = right_.data() + k * columns_ + column;
            for (size_t i = 0; i < part.size(); ++i) sums[i] += factor * from[i];
        }
        std::transform(sums.begin(), sums.begin() + std::ssize(part), part.begin(),
                       [](double sum) { return static_cast<float>(sum); });
        done += part.size();
    }
}

std::optional<AdapterProduct> adapter_product(const ModelWeights& weights,
                                              const std::string& weight, float scale,
                                              bool transposed) {
    constexpr std::string_view kWeight = ".weight";
    if (!weight.ends_with(kWeight)) return std::nullopt;
    const std::string module = weight.substr(0, weight.size() - kWeight.size());
    if (!weights.has(lora_a_name(module))) return std::nullopt;
    return AdapterProduct(weights.at(lora_a_name(module)), weights.at(lora_b_name(module)), scale,
                          transposed);
}

}  // namespace vocabpipe
