// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cublasLt.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/cuda/product_plan.hpp"
#include "vocabpipe/context.hpp"

namespace vocabpipe::kernels::cuda {

/// Algorithms by shape, chosen by timing: data for one model of GPU and one version of cuBLASLt,
/// which only promises to restore stored algorithms of its own version.
class ProductChoices {
public:
    /// `device`: the name of the GPU.
    explicit ProductChoices(std::string device = {}) : device_(std::move(device)) {}

    /// Null for a shape without a choice.
    [[nodiscard]] const cublasLtMatmulAlgo_t* find(const ProductShape& shape) const;
    void set(const ProductShape& shape, const cublasLtMatmulAlgo_t& algorithm);
    [[nodiscard]] size_t size() const { return algorithms_.size(); }
    /// Adds the choices for shapes that have none here; others keep their algorithms.
    void add_missing(const ProductChoices& other);

    /// A line of text per shape, sorted, after three lines that name what it is valid for.
    [[nodiscard]] std::string text() const;
    /// Throws InputFileError for a malformed text, or one of another GPU or version; the message
    /// begins with the fault, so that the caller can add where the text is from.
    [[nodiscard]] static ProductChoices parse(std::string_view text, const std::string& device);

private:
    std::string device_;
    std::unordered_map<ProductShape, cublasLtMatmulAlgo_t, ProductShapeHash> algorithms_;
};

/// The name of the calling thread's GPU, for which choices are made.
[[nodiscard]] std::string name_of_gpu();

/// Products whose shapes first occur after this call run with these choices.
void use_choices(Engine& engine, ProductChoices choices);

/// The shapes of the products that the engine of `ctx` has run, sorted by their text.
[[nodiscard]] std::vector<ProductShape> product_shapes(Context& ctx);

/// Index of the candidate to use, given the candidates' times (infinite where cuBLASLt refuses
/// one): the first that is not refused, unless another takes 2 % less; smaller differences are
/// noise.
[[nodiscard]] size_t worth_choosing(std::span<const float> times);

/// The best candidate of `plan` for these operands, chosen by worth_choosing() after running each
/// several times on the stream of `ctx`, in turn; waits for them. Empty if cuBLASLt refuses all.
[[nodiscard]] std::optional<size_t> fastest_candidate(Context& ctx, ProductPlan& plan,
                                                      const Product& product);

/// Times the candidates of each shape on memory of its own. Omits shapes whose matrices do not fit
/// the GPU's free memory, or that had another workspace than that of `ctx`.
[[nodiscard]] ProductChoices time_products(Context& ctx, std::span<const ProductShape> shapes,
                                           const std::string& device);

}  // namespace vocabpipe::kernels::cuda
