// SPDX-License-Identifier: Apache-2.0
#include "src/support/crc32c.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace vocabpipe {
namespace {

std::span<const std::byte> bytes(const std::string& text) {
    return std::as_bytes(std::span(text));
}

TEST(Crc32c, HasThePublishedValues) {
    // RFC 3720, appendix B.4, and the check value of the parameter catalogues.
    EXPECT_EQ(crc32c(bytes("123456789")), 0xe3069283U);
    EXPECT_EQ(crc32c(bytes(std::string(32, '\0'))), 0x8a9136aaU);
    EXPECT_EQ(crc32c(bytes(std::string(32, '\xff'))), 0x62a8ab43U);
    EXPECT_EQ(crc32c({}), 0U);
}

TEST(Crc32c, IsTheSameInHardwareAndByTablesAtEveryLengthAndInParts) {
    std::mt19937 random(1);
    std::vector<std::byte> data(4099);
    for (std::byte& b : data) b = static_cast<std::byte>(random());
    for (size_t length : {0UL, 1UL, 7UL, 8UL, 9UL, 63UL, 1000UL, 4099UL}) {
        const auto part = std::span<const std::byte>(data).first(length);
        EXPECT_EQ(crc32c(part), crc32c_by_tables(part)) << length;
        const size_t cut = length / 3;
        EXPECT_EQ(crc32c(part.subspan(cut), crc32c(part.first(cut))), crc32c(part)) << length;
        EXPECT_EQ(crc32c_combine(crc32c(part.first(cut)), crc32c(part.subspan(cut)), length - cut),
                  crc32c(part))
            << length;
    }
}

}  // namespace
}  // namespace vocabpipe
