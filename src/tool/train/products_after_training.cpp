// SPDX-License-Identifier: Apache-2.0
#include "src/tool/train/products_after_training.hpp"

#include "vocabpipe/error.hpp"

#ifdef VOCABPIPE_WITH_CUDA
#include "kernels/cuda/product_choices.hpp"
#include "kernels/cuda/product_shape.hpp"
#include "src/support/output_file.hpp"
#include "src/tool/train/product_cache.hpp"
#include "vocabpipe/cuda/product_choices.hpp"

#include <algorithm>
#include <vector>
#endif

namespace vocabpipe::tool {

#ifdef VOCABPIPE_WITH_CUDA
namespace {

using kernels::cuda::ProductShape;

void write_products(Communicator& communicator, Device& device, const std::string& path) {
    const std::string text = time_products(communicator, device);
    communicator.agree([&] {
        if (communicator.rank() != 0) return;
        OutputFile file(path);
        file.write(text);
        file.publish();
    });
}

/// Offers rank 0's file; empty if there is nothing to offer.
std::string offer_products(Communicator& communicator, Device& device) {
    const std::vector<std::string> shapes = product_shapes(communicator, device);
    std::string line;
    communicator.agree([&] {
        if (communicator.rank() != 0) return;
        const ProductCache cache(kernels::cuda::name_of_gpu(),
                                 [&](const std::string& note) { line = note; });
        if (!cache.exists()) return;
        const kernels::cuda::ProductChoices choices = cache.read();
        const auto known = std::ranges::count_if(shapes, [&](const std::string& shape) {
            return choices.find(ProductShape::parse(shape)) != nullptr;
        });
        if (known == 0) return;
        line = "products: --product-choices " + cache.path() + " would run " +
               std::to_string(known) + " of " + std::to_string(shapes.size()) +
               " shapes with timed algorithms (bits differ)";
    });
    return line;
}

}  // namespace
#endif

std::function<std::string(Communicator&, Device&)> products_after_training(
    const std::string& device, const std::string& time_products,
    [[maybe_unused]] const GpuOptions& gpu) {
    if (device != "cuda") {
        if (time_products.empty()) return {};
        throw UsageError("--time-products " + time_products + ": requires --device cuda, got " +
                         device);
    }
#ifdef VOCABPIPE_WITH_CUDA
    return [time_products, offers = gpu.product_choices_file.empty()](Communicator& communicator,
                                                                      Device& used) {
        if (!time_products.empty()) write_products(communicator, used, time_products);
        return offers ? offer_products(communicator, used) : std::string();
    };
#else
    return {};  // device_factory() has refused the device already
#endif
}

}  // namespace vocabpipe::tool
