// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/cuda/product_choices.hpp"

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/product_choices.hpp"

#include <set>
#include <span>
#include <sstream>
#include <vector>

namespace vocabpipe {

namespace {

using kernels::cuda::ProductShape;

std::vector<std::string> gather(Communicator& communicator, const std::string& mine) {
    std::vector<std::string> texts;
    for (const std::vector<std::byte>& bytes :
         communicator.all_gather(std::as_bytes(std::span(mine)))) {
        texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return texts;
}

std::string name_of_gpu() {
    int device = 0;
    kernels::cuda::check(cudaGetDevice(&device), "cudaGetDevice");
    cudaDeviceProp properties{};
    kernels::cuda::check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    return properties.name;
}

}  // namespace

std::string time_products(Communicator& communicator, Device& device) {
    Context ctx(device.context(1, {}));
    std::string mine;
    for (const ProductShape& shape : kernels::cuda::product_shapes(ctx)) {
        mine += shape.text() + "\n";
    }
    std::set<std::string> lines;
    for (const std::string& text : gather(communicator, mine)) {
        std::istringstream in(text);
        for (std::string line; std::getline(in, line);) lines.insert(line);
    }
    std::string text;
    communicator.agree([&] {
        if (communicator.rank() != 0) return;
        std::vector<ProductShape> shapes;
        for (const std::string& line : lines) shapes.push_back(ProductShape::parse(line));
        text = kernels::cuda::time_products(ctx, shapes, name_of_gpu()).text();
    });
    return gather(communicator, text).front();
}

}  // namespace vocabpipe
