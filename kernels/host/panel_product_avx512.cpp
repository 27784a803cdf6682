// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX-512 on every x86 machine.
#ifdef __AVX512BF16__

#include "kernels/host/panel_loops.hpp"
#include "kernels/host/panel_packing.hpp"

namespace vocabpipe::kernels::host {

namespace {

/// What panel_loops.hpp asks for, by panel_packing.hpp.
struct Avx512 {
    static constexpr int64_t kLanes = host::kLanes;
    static constexpr int kTileRows = 8;
    static constexpr int kTileVectors = 3;
    static constexpr int64_t kPackedRows = 16;
    using Floats = __m512;
    using Words = __m512i;
    using Mask = __mmask16;

    static Mask first_lanes(int64_t count) { return host::first_lanes(count); }
    static Words load_words(const Word* from) { return _mm512_load_si512(from); }
    static Words every_lane(Word word) { return _mm512_set1_epi32(static_cast<int>(word)); }
    template <DType type>
    static Floats load_floats(const std::byte* from, Mask mask) {
        return host::load_floats<type>(from, mask);
    }
    template <DType type>
    static void store_floats(std::byte* to, Mask mask, Floats values) {
        host::store_floats<type>(to, mask, values);
    }
    template <DType type>
    static Floats add_words(Floats sum, Words a, Words b) {
        return host::add_words<type>(sum, a, b);
    }
    /// Packs columns of rows that are terms, `width` together and these `apart`; a panel of b is
    /// one strip.
    template <DType type, int64_t width>
    static void pack_rows(const Stored& from, int64_t terms, int64_t columns, Word* to,
                          int64_t apart) {
        pack_by_rows<type>(from, terms, columns, to, width, width == kLanes ? apart : kLanes);
    }
    template <DType type, int64_t width>
    static void pack_columns(const Stored& from, int64_t terms, int64_t columns, Word* to) {
        pack_by_columns<type>(from, terms, columns, to, width);
    }
};

}  // namespace

const PanelCode kAvx512Panels = kPanelCode<Avx512, DType::fp32>;
const PanelCode kAvx512Bf16Panels = kPanelCode<Avx512, DType::bf16>;

}  // namespace vocabpipe::kernels::host

#endif
