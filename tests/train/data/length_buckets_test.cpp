// SPDX-License-Identifier: Apache-2.0
#include "src/support/length_buckets.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "src/support/length_distribution.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;

double total_cost(const std::vector<LengthCount>& documents, const std::vector<int64_t>& buckets,
                  const std::function<double(int64_t)>& cost) {
    double sum = 0;
    for (const LengthCount& of_length : documents) {
        int64_t left = of_length.length;
        for (; left > buckets.back(); left -= buckets.back()) {
            sum += static_cast<double>(of_length.count) * cost(buckets.back());
        }
        sum +=
            static_cast<double>(of_length.count) * cost(*std::ranges::lower_bound(buckets, left));
    }
    return sum;
}

TEST(LengthBuckets, CostLeastOfAllChoices) {
    std::mt19937 random(3);
    for (int round = 0; round < 40; ++round) {
        const double square = round % 4 * 0.01;
        const auto cost = [&](int64_t s) {
            return static_cast<double>(s) * (1 + square * static_cast<double>(s));
        };
        std::vector<LengthCount> documents;
        for (int64_t length = 1; length < 150; length += 1 + random() % 9) {
            documents.push_back({length, static_cast<int64_t>(random() % 50)});
        }
        const LengthBucketOptions options{.seq_length = 96, .multiple = 8, .most = 3};
        const std::vector<int64_t> chosen = choose_length_buckets(documents, options, cost);
        ASSERT_LE(chosen.size(), 3U);
        ASSERT_EQ(chosen.back(), 96);
        double least = std::numeric_limits<double>::infinity();
        for (int64_t a = 8; a <= 96; a += 8) {
            for (int64_t b = a; b <= 96; b += 8) {
                least = std::min(least, total_cost(documents, {a, b, 96}, cost));
            }
        }
        ASSERT_NEAR(total_cost(documents, chosen, cost), least, 1e-9 * least) << round;
    }
}

TEST(LengthBuckets, AreOneWhereNoDocumentIsShorter) {
    const auto cost = [](int64_t s) { return static_cast<double>(s); };
    EXPECT_EQ(choose_length_buckets(std::vector<LengthCount>{{512, 7}, {1024, 1}},
                                    {.seq_length = 512}, cost),
              std::vector<int64_t>{512});
    EXPECT_EQ(choose_length_buckets(std::vector<LengthCount>{{3, 7}}, {.seq_length = 48}, cost),
              std::vector<int64_t>{48});  // shorter than the multiple
    // No bucket without a document, even below the longest.
    EXPECT_EQ(choose_length_buckets(std::vector<LengthCount>{{60, 7}}, {.seq_length = 512}, cost),
              (std::vector<int64_t>{64, 512}));
}

TEST(LengthBuckets, AreReadInAnyOrder) {
    EXPECT_EQ(parse_length_buckets("512,64,256", 512), (std::vector<int64_t>{64, 256, 512}));
    EXPECT_EQ(parse_length_buckets("512", 512), (std::vector<int64_t>{512}));
}

TEST(LengthBuckets, AreRefusedInOneLineThatSaysWhatIsWrong) {
    const auto fault = [](const std::string& text) {
        return message_of<UsageError>([&] { (void)parse_length_buckets(text, 512); });
    };
    EXPECT_THAT(fault("64"), HasSubstr("the largest must be --seq-length 512; add it"));
    EXPECT_THAT(fault("64,1024,512"), HasSubstr("1024 is more than --seq-length 512"));
    EXPECT_THAT(fault("64,64,512"), HasSubstr("has 64 twice"));
    EXPECT_THAT(fault("0,512"), HasSubstr("\"0\" is not an integer of at least 1"));
    EXPECT_THAT(fault("-1,512"), HasSubstr("\"-1\" is not"));
    EXPECT_THAT(fault("64,,512"), HasSubstr("\"\" is not an integer"));
    EXPECT_THAT(fault("64;512"), AllOf(HasSubstr("--length-buckets 64;512: "), HasSubstr("auto")));
    EXPECT_THAT(fault("99999999999999999999,512"), HasSubstr("is not an integer"));
    std::string many;
    for (int i = 1; i <= 64; ++i) many += std::to_string(i) + ",";
    EXPECT_THAT(fault(many + "512"), HasSubstr("has 65 lengths; use at most 64"));
}

class LengthDistribution : public ::testing::Test {
protected:
    std::string fault(const std::string& text) {
        const std::string path = folder_ / "lengths.csv";
        std::ofstream(path, std::ios::binary) << text;
        return message_of<InputFileError>([&] { (void)read_length_distribution(path); });
    }
    testing::TempFolder folder_;
};

TEST_F(LengthDistribution, IsReadAsItWasWritten) {
    const std::vector<LengthCount> lengths{{1, 0}, {7, 3}, {4096, int64_t{1} << 40}};
    const std::string path = folder_ / "lengths.csv";
    write_length_distribution(path, lengths);
    EXPECT_EQ(read_length_distribution(path), lengths);
}

TEST_F(LengthDistribution, IsRefusedWithFileLineAndRemedy) {
    EXPECT_THAT(fault(""), HasSubstr("is empty; begin with the line length,count"));
    EXPECT_THAT(fault("7,3\n"), HasSubstr(":1: \"7,3\" is no header"));
    EXPECT_THAT(fault("length,count\n7\n"), HasSubstr(":2: \"7\" has no comma"));
    EXPECT_THAT(fault("length,count\n7,3\n7,4\n"), HasSubstr(":3: length 7 follows 7; sort"));
    EXPECT_THAT(fault("length,count\n0,3\n"), HasSubstr("must be an integer from 1 to"));
    EXPECT_THAT(fault("length,count\n7,-3\n"), HasSubstr("count \"-3\": must be"));
    EXPECT_THAT(fault("length,count\n7,3,4\n"), HasSubstr("count \"3,4\": must be"));
    EXPECT_THAT(fault("length,count\n7,0\n"), HasSubstr("no length with a count above 0"));
    EXPECT_THAT(fault("length,count\n" + std::string(1'000'000, '\n')),
                HasSubstr("more than 1000000 lines"));
}

// Any bytes are read or refused, and nothing else happens.
TEST_F(LengthDistribution, NeverCrashesOnOtherBytes) {
    std::mt19937 random(9);
    const std::string good = "# x\nlength,count\n1,2\n5,0\n77,12\n";
    const std::string path = folder_ / "lengths.csv";
    for (int round = 0; round < 3000; ++round) {
        std::string text = good;
        for (uint32_t i = 0; i <= random() % 4; ++i) {
            text[random() % text.size()] = static_cast<char>(random() % 256);
        }
        text.resize(random() % (text.size() + 1));
        std::ofstream(path, std::ios::binary) << text;
        try {
            EXPECT_FALSE(read_length_distribution(path).empty());
        } catch (const InputFileError&) {
        }
    }
}

}  // namespace
}  // namespace vocabpipe
