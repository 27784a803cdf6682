// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/product_shape.hpp"

#include <cstdint>
#include <sstream>

#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

/// Calls `visit` with every member of a ProductShape, always in the same order.
void each_member(auto& s, auto&& visit) {
    visit(s.m), visit(s.n), visit(s.k);
    visit(s.a_stride), visit(s.b_stride), visit(s.c_stride);
    visit(s.addend_stride), visit(s.aux_stride);
    visit(s.batch), visit(s.a_step), visit(s.b_step), visit(s.c_step);
    visit(s.workspace_bytes), visit(s.multiprocessors);
    visit(s.a_alignment), visit(s.b_alignment), visit(s.c_alignment);
    visit(s.addend_alignment), visit(s.bias_alignment);
    visit(s.ab_type), visit(s.c_type), visit(s.bias_type);
    visit(s.transpose_a), visit(s.transpose_b), visit(s.has_addend), visit(s.has_bias);
    visit(s.epilogue);
}

int alignment_of(const void* data, int64_t step, DType type) {
    const auto bits = reinterpret_cast<uintptr_t>(data) |
                      static_cast<uintptr_t>(step * size_of(type)) | uintptr_t{kLargestAlignment};
    return static_cast<int>(bits & -bits);
}

const char* name_of(DType type) {
    return type == DType::bf16 ? "bf16" : "fp32";
}

}  // namespace

ProductShape ProductShape::of(const Product& p, const Engine& engine) {
    ProductShape s{.m = p.c.rows,
                   .n = p.c.cols,
                   .k = p.transpose_a ? p.a.rows : p.a.cols,
                   .a_stride = p.a.stride,
                   .b_stride = p.b.stride,
                   .c_stride = p.c.stride};
    s.workspace_bytes = static_cast<int64_t>(engine.workspace().size());
    s.multiprocessors = engine.product_multiprocessors();
    s.batch = p.batch;
    if (p.batch > 1) {
        s.a_step = p.a_step;
        s.b_step = p.b_step;
        s.c_step = p.c_step;
    }
    s.a_alignment = alignment_of(p.a.data, s.a_step, p.a.dtype);
    s.b_alignment = alignment_of(p.b.data, s.b_step, p.b.dtype);
    s.c_alignment = alignment_of(p.c.data, s.c_step, p.c.dtype);
    s.ab_type = p.a.dtype;
    s.c_type = p.c.dtype;
    s.transpose_a = p.transpose_a;
    s.transpose_b = p.transpose_b;
    s.has_addend = static_cast<bool>(p.addend);
    s.addend_stride = s.has_addend ? p.addend.stride : s.c_stride;
    s.addend_alignment =
        s.has_addend ? alignment_of(p.addend.data, s.c_step, p.addend.dtype) : s.c_alignment;
    s.has_bias = static_cast<bool>(p.bias);
    if (s.has_bias) {
        s.bias_type = p.bias.dtype;
        s.bias_alignment = alignment_of(p.bias.data, 0, p.bias.dtype);
    }
    s.epilogue = p.epilogue;
    if (p.epilogue != Epilogue::none) s.aux_stride = p.aux.stride;
    return s;
}

size_t ProductShapeHash::operator()(const ProductShape& shape) const {
    uint64_t hash = 0;
    each_member(shape, [&](auto member) {
        hash = (hash ^ static_cast<uint64_t>(member)) * 0x9e3779b97f4a7c15ULL;
        hash ^= hash >> 29;
    });
    return hash;
}

std::string ProductShape::text() const {
    std::string line;
    each_member(*this, [&](auto member) {
        line += (line.empty() ? "" : " ") + std::to_string(static_cast<int64_t>(member));
    });
    return line;
}

ProductShape ProductShape::parse(std::string_view text) {
    std::istringstream in{std::string(text)};
    ProductShape shape;
    each_member(shape, [&]<typename T>(T& member) {
        int64_t number = 0;
        if (!(in >> number)) {
            throw InputFileError("a product's shape has too few numbers: " + std::string(text));
        }
        member = static_cast<T>(number);
    });
    std::string rest;
    if (in >> rest) {
        throw InputFileError("a product's shape has too many numbers: " + std::string(text));
    }
    return shape;
}

std::string describe(const ProductShape& s) {
    const auto number = [](int64_t value) { return std::to_string(value); };
    std::string text = "product of (" + number(s.m) + ", " + number(s.k) + ") and (" + number(s.k) +
                       ", " + number(s.n) + ") " + name_of(s.ab_type) + " into " +
                       name_of(s.c_type);
    if (s.batch != 1) text += ", " + number(s.batch) + " times";
    if (s.transpose_a) text += ", the first one transposed";
    if (s.transpose_b) text += ", the second one transposed";
    if (s.has_bias) text += ", with bias";
    if (s.has_addend) text += ", with addend";
    if (s.epilogue != Epilogue::none) text += ", with GELU";
    return text;
}

}  // namespace vocabpipe::kernels::cuda
