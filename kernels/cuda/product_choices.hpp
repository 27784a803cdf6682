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

/// Algorithms by shape, chosen by timing: data of one model of GPU and one version of cuBLASLt,
/// which promises for its own version alone that stored algorithms can be restored.
class ProductChoices {
public:
    /// `device`: the name of the GPU.
    explicit ProductChoices(std::string device = {}) : device_(std::move(device)) {}

    /// Null for a shape that was not timed.
    [[nodiscard]] const cublasLtMatmulAlgo_t* find(const ProductShape& shape) const;
    void set(const ProductShape& shape, const cublasLtMatmulAlgo_t& algorithm);
    [[nodiscard]] size_t size() const { return algorithms_.size(); }
    /// Takes over the shapes that are not here yet; others keep their algorithms.
    void add_missing(const ProductChoices& other);

    /// A line of text per shape, sorted, behind three that say what it holds for.
    [[nodiscard]] std::string text() const;
    /// Throws InputFileError for a text that is no such thing, or of another GPU or version; what
    /// it says begins with the fault, for a caller that knows where the text is from.
    [[nodiscard]] static ProductChoices parse(std::string_view text, const std::string& device);

private:
    std::string device_;
    std::unordered_map<ProductShape, cublasLtMatmulAlgo_t, ProductShapeHash> algorithms_;
};

/// The name of the calling thread's GPU, which choices are made on.
[[nodiscard]] std::string name_of_gpu();

/// Products whose shapes are met for the first time from now on run with these.
void use_choices(Engine& engine, ProductChoices choices);

/// The shapes of the products that the engine of `ctx` has run, sorted by their text.
[[nodiscard]] std::vector<ProductShape> product_shapes(Context& ctx);

/// Which candidate of a list with these times, infinite where cuBLASLt refuses one: the first that
/// is not refused, unless another takes 2 % less; less than that is noise.
[[nodiscard]] size_t worth_choosing(std::span<const float> times);

/// The candidate of `plan` with the least time for these operands, each run several times on the
/// stream of `ctx`, by turns; waits for them. Empty if cuBLASLt refuses all. worth_choosing()
/// decides.
[[nodiscard]] std::optional<size_t> fastest_candidate(Context& ctx, ProductPlan& plan,
                                                      const Product& product);

/// Times the candidates of each shape on memory of its own. Shapes whose matrices do not fit the
/// GPU's free memory, or that another workspace than that of `ctx` was given for, are left out.
[[nodiscard]] ProductChoices time_products(Context& ctx, std::span<const ProductShape> shapes,
                                           const std::string& device);

}  // namespace vocabpipe::kernels::cuda
