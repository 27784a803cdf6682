// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/cuda/product_choices.hpp"

#include "kernels/cuda/product_choices.hpp"
#include "src/runtime/gathered.hpp"

#include <set>
#include <sstream>
#include <vector>

namespace vocabpipe {

namespace {

using kernels::cuda::ProductShape;

/// The shapes that the devices of all ranks have run, as texts.
std::set<std::string> gather_shapes(Communicator& communicator, Context& ctx) {
    std::string mine;
    for (const ProductShape& shape : kernels::cuda::product_shapes(ctx)) {
        mine += shape.text() + "\n";
    }
    std::set<std::string> lines;
    for (const std::string& text : gathered_texts(communicator, mine)) {
        std::istringstream in(text);
        for (std::string line; std::getline(in, line);) lines.insert(line);
    }
    return lines;
}

}  // namespace

std::string time_products(Communicator& communicator, Device& device) {
    Context ctx(device.context(1, {}));
    const std::set<std::string> lines = gather_shapes(communicator, ctx);
    std::string text;
    communicator.agree([&] {
        if (communicator.rank() != 0) return;
        std::vector<ProductShape> shapes;
        for (const std::string& line : lines) shapes.push_back(ProductShape::parse(line));
        text = kernels::cuda::time_products(ctx, shapes, kernels::cuda::name_of_gpu()).text();
    });
    return gathered_texts(communicator, text).front();
}

std::vector<std::string> product_shapes(Communicator& communicator, Device& device) {
    Context ctx(device.context(1, {}));
    const std::set<std::string> lines = gather_shapes(communicator, ctx);
    return {lines.begin(), lines.end()};
}

}  // namespace vocabpipe
