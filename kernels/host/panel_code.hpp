// SPDX-License-Identifier: Apache-2.0
// Products of panels, compiled once per instruction set: private to panel_product*.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host/matmul.hpp"

namespace vocabpipe::kernels::host {

/// panel_product_bytes() and panel_product() for one type.
struct PanelCode {
    int64_t (*bytes)(const MatmulShape& shape);
    void (*run)(const MatmulShape& shape, const void* a, const void* b, void* c, const void* bias,
                std::byte* memory);
};

extern const PanelCode kPlainPanels;  ///< for every CPU
#ifdef __x86_64__
extern const PanelCode kAvx2Panels;
extern const PanelCode kAvx512Panels;
extern const PanelCode kAvx512Bf16Panels;  ///< of bf16
#endif

}  // namespace vocabpipe::kernels::host
