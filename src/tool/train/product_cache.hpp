// SPDX-License-Identifier: Apache-2.0
// Only with CUDA.
#pragma once

#include "kernels/cuda/product_choices.hpp"
#include "vocabpipe/context.hpp"

#include <cstddef>
#include <functional>
#include <string>

namespace vocabpipe::tool {

/// Timed algorithms of matrix products, kept from run to run: a file in the user's cache folder for
/// each model of GPU and version of cuBLASLt. If it cannot be read or written, `note` gets a line
/// and the run goes on. Bits depend on it.
class ProductCache {
public:
    using Note = std::function<void(const std::string& line)>;

    /// `gpu`: its name.
    ProductCache(std::string gpu, Note note);

    /// Empty if there is no cache folder.
    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] bool exists() const;

    /// None if the file is missing, damaged, or of another GPU or library.
    [[nodiscard]] kernels::cuda::ProductChoices read() const;

    /// Adds the shapes that the file lacks; shapes that it has keep their algorithms, and so their
    /// bits. A file that read() ignores is left unchanged. Returns the choices that later runs will
    /// use: the file's, and `timed` for the rest.
    [[nodiscard]] kernels::cuda::ProductChoices add(kernels::cuda::ProductChoices timed) const;

    /// Result of complete(): numbers of product shapes.
    struct Completed {
        kernels::cuda::ProductChoices choices;
        size_t known = 0;  ///< that ran with the file's choice
        size_t timed = 0;
        size_t untimed = 0;  ///< without memory for timing, or without an algorithm that runs
        std::string file;

        /// "products: 7 shapes from FILE, 2 timed now"
        [[nodiscard]] std::string line() const;
    };
    /// Times the products that `ctx` has run and that `known`, returned by read(), lacks, and adds
    /// them. The choices take effect in engines that are made later.
    [[nodiscard]] Completed complete(Context& ctx, kernels::cuda::ProductChoices known) const;

private:
    [[nodiscard]] kernels::cuda::ProductChoices parse_file() const;

    std::string gpu_;
    Note note_;
    std::string path_;
};

}  // namespace vocabpipe::tool
