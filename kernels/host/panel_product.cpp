// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/panel_product.hpp"

#include "kernels/host/panel_code.hpp"

namespace vocabpipe::kernels::host {

namespace {

const PanelCode& code_of([[maybe_unused]] InstructionSet set, [[maybe_unused]] DType type) {
#ifdef __x86_64__
    if (type == DType::bf16) return kAvx512Bf16Panels;
    if (set >= InstructionSet::avx512) return kAvx512Panels;
    if (set >= InstructionSet::avx2) return kAvx2Panels;
#endif
    return kPlainPanels;
}

}  // namespace

bool has_panels(InstructionSet set, DType ab_type) {
    return ab_type == DType::fp32 || (ab_type == DType::bf16 && set >= InstructionSet::avx512_bf16);
}

int64_t panel_product_bytes(InstructionSet set, const MatmulShape& shape) {
    return code_of(set, shape.ab_type).bytes(shape);
}

void panel_product(InstructionSet set, const MatmulShape& shape, const void* a, const void* b,
                   void* c, const void* bias, std::byte* memory) {
    code_of(set, shape.ab_type).run(shape, a, b, c, bias, memory);
}

}  // namespace vocabpipe::kernels::host
