// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace cuda_stand_in {

/// Distance of the program in memory from the addresses of its file.
[[nodiscard]] uintptr_t load_offset();

/// Name of the function at an address of this program, or the address.
[[nodiscard]] std::string function_name(const void* address);

/// The same as the linker knows it, which stays for ever; null when the program has been stripped.
[[nodiscard]] const char* mangled_function_name(const void* address);

}  // namespace cuda_stand_in
