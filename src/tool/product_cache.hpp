// SPDX-License-Identifier: Apache-2.0
// Where there is CUDA.
#pragma once

#include "kernels/cuda/product_choices.hpp"
#include "vocabpipe/context.hpp"

#include <cstddef>
#include <functional>
#include <string>

namespace vocabpipe::tool {

/// Algorithms of matrix products that were timed, kept from run to run: a file of the user's cache
/// folder for a model of GPU and a version of cuBLASLt. That it cannot be read or written fails no
/// run and is a line for `note`. Bits depend on it.
class ProductCache {
public:
    using Note = std::function<void(const std::string& line)>;

    /// `gpu`: its name.
    ProductCache(std::string gpu, Note note);

    /// Empty: there is no cache folder.
    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] bool exists() const;

    /// None where there is no file, or one that is damaged or of another GPU or library.
    [[nodiscard]] kernels::cuda::ProductChoices read() const;

    /// Adds the shapes that the file lacks; those that it has keep their algorithms, and so their
    /// bits. A file that read() ignores stays as it is. Returns what runs have from now on: the
    /// file's choices, and `timed` where it has none.
    [[nodiscard]] kernels::cuda::ProductChoices add(kernels::cuda::ProductChoices timed) const;

    /// Shapes of products.
    struct Completed {
        kernels::cuda::ProductChoices choices;
        size_t known = 0;  ///< that ran as the file says
        size_t timed = 0;
        size_t untimed = 0;  ///< for which there is no memory, or nothing that runs
        std::string file;

        /// "products: 7 shapes from FILE, 2 timed now"
        [[nodiscard]] std::string line() const;
    };
    /// Times what `known`, which read() returned, lacks of the products that `ctx` has run, and
    /// adds it. Its choices are for engines that are made later.
    [[nodiscard]] Completed complete(Context& ctx, kernels::cuda::ProductChoices known) const;

private:
    [[nodiscard]] kernels::cuda::ProductChoices parse_file() const;

    std::string gpu_;
    Note note_;
    std::string path_;
};

}  // namespace vocabpipe::tool
