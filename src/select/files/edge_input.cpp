// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/edge_input.hpp"

#include "src/select/files/npy/npy_file.hpp"
#include "src/select/files/parquet/parquet.hpp"
#include "src/select/files/sample_input.hpp"
#include "src/support/safetensors/format.hpp"
#include "src/support/text_layout.hpp"
#include "vocabpipe/error.hpp"

#include <cmath>
#include <vector>

namespace vocabpipe {

namespace {

constexpr size_t kEdgesAtOnce = size_t{1} << 15;

int64_t whole_number(double number, const std::string& path, int64_t row, const char* column) {
    constexpr double kMost = 0x1p53;  // fp64 holds all whole numbers up to it
    if (number >= 0 && number < kMost && number == std::floor(number)) {
        return static_cast<int64_t>(number);
    }
    throw InputFileError(place_of(path, row, column) + " is " + format("%.17g", number) +
                         "; it must be the number of a sample, from 0");
}

/// An array with three columns of numbers.
class NpyEdges : public EdgeInput {
public:
    explicit NpyEdges(NpyInput file)
        : EdgeInput(file.path(), file.header().shape.front()), file_(std::move(file)) {}
    void read(int64_t first, std::span<WeightedEdge> to) override {
        while (!to.empty()) {
            const size_t count = std::min(to.size(), kEdgesAtOnce);
            numbers_.resize(count * 3);
            file_.read(first * 3, std::span<double>(numbers_));
            for (size_t i = 0; i < count; ++i) {
                const int64_t row = first + static_cast<int64_t>(i);
                to[i] = {.source = whole_number(numbers_[3 * i], path(), row, "src"),
                         .destination = whole_number(numbers_[3 * i + 1], path(), row, "dst"),
                         .weight = numbers_[3 * i + 2]};
            }
            first += static_cast<int64_t>(count);
            to = to.subspan(count);
        }
    }

private:
    NpyInput file_;
    std::vector<double> numbers_;
};

}  // namespace

std::unique_ptr<EdgeInput> open_edges(const std::string& path) {
    if (is_parquet(path)) return open_parquet_edges(path);
    if (!is_npy(path)) {
        throw UsageError("--edges " + path + ": must end in .parquet or .npy");
    }
    NpyInput file(path);
    const NpyHeader& header = file.header();
    if (header.shape.size() != 2 || header.shape.back() != 3) {
        throw InputFileError(path + ": has shape " + shape_text(header.shape) +
                             "; edges are rows of three numbers: src, dst, weight");
    }
    if (header.type == NpyType::f2 || header.type == NpyType::f4) {
        throw InputFileError(path + ": has elements " + std::string(descr_of(header.type)) +
                             ", which cannot number all samples; save it as f8: np.save(FILE, "
                             "x.astype('<f8'))");
    }
    return std::make_unique<NpyEdges>(std::move(file));
}

}  // namespace vocabpipe
