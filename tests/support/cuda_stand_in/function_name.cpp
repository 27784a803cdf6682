// SPDX-License-Identifier: Apache-2.0
#include "function_name.hpp"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace cuda_stand_in {

uintptr_t load_offset() {
    uintptr_t offset = 0;
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* result) {
            *static_cast<uintptr_t*>(result) = info->dlpi_addr;
            return 1;  // the first entry is the program itself
        },
        &offset);
    return offset;
}

namespace {

template <typename T>
const T* at(const std::vector<char>& file, uint64_t offset) {
    return reinterpret_cast<const T*>(file.data() + offset);
}

/// The mangled name from the program's symbol table, which has static functions as well; "" when
/// it has been stripped.
std::string symbol_at(uintptr_t address) {
    std::ifstream program("/proc/self/exe", std::ios::binary);
    const std::vector<char> file{std::istreambuf_iterator<char>(program), {}};
    if (file.size() < sizeof(Elf64_Ehdr)) {
        return {};
    }
    const auto* const header = at<Elf64_Ehdr>(file, 0);
    const auto* const sections = at<Elf64_Shdr>(file, header->e_shoff);
    for (int s = 0; s < header->e_shnum; ++s) {
        if (sections[s].sh_type != SHT_SYMTAB) {
            continue;
        }
        const auto* const symbols = at<Elf64_Sym>(file, sections[s].sh_offset);
        const char* const names = at<char>(file, sections[sections[s].sh_link].sh_offset);
        for (uint64_t i = 0; i < sections[s].sh_size / sizeof(Elf64_Sym); ++i) {
            if (ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && address >= symbols[i].st_value &&
                address < symbols[i].st_value + symbols[i].st_size) {
                return names + symbols[i].st_name;
            }
        }
    }
    return {};
}

}  // namespace

std::string function_name(const void* address) {
    const std::string symbol = symbol_at(reinterpret_cast<uintptr_t>(address) - load_offset());
    if (symbol.empty()) {
        char text[32];
        std::snprintf(text, sizeof text, "at %p", address);
        return text;
    }
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> name(
        abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
    return status == 0 ? name.get() : symbol;
}

const char* mangled_function_name(const void* address) {
    struct Names {
        std::mutex mutex;
        std::map<const void*, std::string> by_address;
    };
    static auto* const all = new Names;
    const std::lock_guard lock(all->mutex);
    const auto [at, is_new] = all->by_address.try_emplace(address);
    if (is_new) at->second = symbol_at(reinterpret_cast<uintptr_t>(address) - load_offset());
    return at->second.empty() ? nullptr : at->second.c_str();
}

}  // namespace cuda_stand_in
