// SPDX-License-Identifier: Apache-2.0
#include "memory_range.hpp"

#include <link.h>

namespace cuda_stand_in {

Memory thread_local_variables() {
    Memory range;
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* result) {
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data != nullptr) {
                    *static_cast<Memory*>(result) = {
                        .low = reinterpret_cast<uintptr_t>(info->dlpi_tls_data),
                        .bytes = info->dlpi_phdr[i].p_memsz};
                }
            }
            return 1;  // the first entry is the program itself
        },
        &range);
    return range;
}

}  // namespace cuda_stand_in
