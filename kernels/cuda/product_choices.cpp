// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/product_choices.hpp"

#include <cinttypes>
#include <cstdio>
#include <iterator>
#include <map>
#include <sstream>
#include <utility>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/engine_state.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr const char* kFormat = "VocabPipe product choices 1";
constexpr size_t kWords = std::size(cublasLtMatmulAlgo_t{}.data);

std::string version_line() {
    return "cuBLASLt " + std::to_string(cublasLtGetVersion());
}

/// "SHAPE: WORDS", hexadecimal.
std::string line_of(const ProductShape& shape, const cublasLtMatmulAlgo_t& algorithm) {
    std::string line = shape.text() + ":";
    for (const uint64_t word : algorithm.data) {
        char text[20];
        std::snprintf(text, sizeof text, " %" PRIx64, word);
        line += text;
    }
    return line;
}

}  // namespace

const cublasLtMatmulAlgo_t* ProductChoices::find(const ProductShape& shape) const {
    const auto at = algorithms_.find(shape);
    return at == algorithms_.end() ? nullptr : &at->second;
}

void ProductChoices::set(const ProductShape& shape, const cublasLtMatmulAlgo_t& algorithm) {
    algorithms_.insert_or_assign(shape, algorithm);
}

void ProductChoices::add_missing(const ProductChoices& other) {
    for (const auto& [shape, algorithm] : other.algorithms_) algorithms_.emplace(shape, algorithm);
}

std::string ProductChoices::text() const {
    std::map<std::string, std::string> lines;  // sorted: equal choices give equal texts
    for (const auto& [shape, algorithm] : algorithms_) {
        lines.emplace(shape.text(), line_of(shape, algorithm));
    }
    std::string text = std::string(kFormat) + "\n" + device_ + "\n" + version_line() + "\n";
    for (const auto& [shape, line] : lines) text += line + "\n";
    return text;
}

ProductChoices ProductChoices::parse(std::string_view text, const std::string& device) {
    std::istringstream in{std::string(text)};
    std::string line;
    const auto expect = [&](const std::string& wanted, const char* what) {
        if (std::getline(in, line) && line == wanted) return;
        throw InputFileError(std::string(what) + " is '" + line + "', but this run has '" + wanted +
                             "'");
    };
    expect(kFormat, "the first line");
    expect(device, "the GPU");
    expect(version_line(), "the library");
    // A truncated word would still parse.
    if (!text.ends_with('\n')) throw InputFileError("the last line is not complete");
    ProductChoices choices(device);
    while (std::getline(in, line)) {
        const size_t colon = line.find(':');
        cublasLtMatmulAlgo_t algorithm{};
        std::istringstream words(colon == std::string::npos ? "" : line.substr(colon + 1));
        words >> std::hex;
        for (uint64_t& word : algorithm.data) words >> word;
        std::string rest;
        if (!words || words >> rest) {
            throw InputFileError("a line is no shape with " + std::to_string(kWords) +
                                 " words: " + line);
        }
        choices.set(ProductShape::parse(std::string_view(line).substr(0, colon)), algorithm);
    }
    return choices;
}

std::string name_of_gpu() {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    return properties.name;
}

void use_choices(Engine& engine, ProductChoices choices) {
    engine.state().choices = std::move(choices);
}

std::vector<ProductShape> product_shapes(Context& ctx) {
    std::map<std::string, ProductShape> sorted;
    for (const auto& [shape, plan] : ctx.cuda().state().products) {
        if (!plan.candidates().empty()) sorted.emplace(shape.text(), shape);
    }
    std::vector<ProductShape> shapes;
    for (const auto& [text, shape] : sorted) shapes.push_back(shape);
    return shapes;
}

}  // namespace vocabpipe::kernels::cuda
