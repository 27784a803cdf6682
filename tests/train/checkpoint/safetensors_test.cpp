// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/support/safetensors/reader.hpp"
#include "src/support/safetensors/writer.hpp"
#include "src/train/checkpoint/tensor_folder.hpp"
#include "tests/train/checkpoint/raw_safetensors.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The smallest file worth reading: one 2 x 2 tensor of F32.
const std::string kJson = R"({"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";
const std::string kData = float_bytes({1, 2, 3, 4});

SafetensorsHeader parse(const std::string& file) {
    return parse_safetensors_header(std::as_bytes(std::span(file)), file.size(), "f.safetensors");
}

TEST(SafetensorsReader, ReadsASmallFile) {
    const SafetensorsHeader header = parse(raw_safetensors(kJson, kData));
    ASSERT_EQ(header.tensors.size(), 1U);
    EXPECT_EQ(header.tensors[0].name, "w");
    EXPECT_EQ(header.tensors[0].type, StoredType::F32);
    EXPECT_EQ(header.tensors[0].shape, (std::vector<int64_t>{2, 2}));
    EXPECT_EQ(header.tensors[0].begin, 8 + kJson.size());
    EXPECT_EQ(header.tensors[0].end, 8 + kJson.size() + 16);
}

TEST(SafetensorsReader, ReadsWhatTheFormatAllows) {
    EXPECT_TRUE(parse(raw_safetensors("{}", "")).tensors.empty());
    // Headers of odd length, padding, scalars, empty tensors, and any order of names.
    const SafetensorsHeader header = parse(raw_safetensors(
        R"({"b":{"dtype":"U8","shape":[],"data_offsets":[4,5]},"__metadata__":{"format":"pt"},)"
        R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
        R"("e":{"dtype":"F64","shape":[0,9],"data_offsets":[4,4]}}   )",
        "12345"));
    ASSERT_EQ(header.tensors.size(), 3U);
    EXPECT_EQ(header.tensors[0].name, "a");
    EXPECT_EQ(header.tensors[1].name, "e");
    EXPECT_EQ(header.tensors[2].name, "b");
    EXPECT_EQ(header.metadata.at("format"), "pt");
}

struct Bad {
    const char* name;
    std::string file;
    const char* says;
};

std::string json_of(const std::string& from, const std::string& to) {
    std::string json = kJson;
    const size_t at = json.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return raw_safetensors(json.replace(at, from.size(), to), kData);
}

std::string with_length(uint64_t length) {
    std::string file = raw_safetensors(kJson, kData);
    std::memcpy(file.data(), &length, 8);
    return file;
}

std::vector<Bad> bad_files() {
    const std::string good = raw_safetensors(kJson, kData);
    const auto two = [](const std::string& a, const std::string& b) {
        return raw_safetensors(R"({"w":{"dtype":"U8","shape":[8],"data_offsets":)" + a +
                                   R"(},"x":{"dtype":"U8","shape":[8],"data_offsets":)" + b + "}}",
                               kData);
    };
    return {
        {"Empty", "", "has 0 bytes"},
        {"ShorterThanALength", "1234567", "has 7 bytes"},
        {"HeaderLengthZero", with_length(0), "does not begin with {"},
        {"HeaderLengthHuge", with_length(100'000'001), "at most 100000000"},
        {"HeaderLengthMost", with_length(~uint64_t{0}), "at most 100000000"},
        {"HeaderLengthBehindTheEnd", with_length(good.size() - 7), "is truncated"},
        {"HeaderLengthOneShort", with_length(kJson.size() - 1), "not valid JSON"},
        {"CutInTheHeader", good.substr(0, 30), "is truncated"},
        {"CutInTheData", good.substr(0, good.size() - 1), "w: data_offsets end at 16"},
        {"TrailingBytes", good + "x", "1 bytes after its last tensor"},
        {"NotJson", raw_safetensors("{\"w\" 3}", ""), "not valid JSON"},
        {"NotAnObject", raw_safetensors("[1,2]", ""), "does not begin with {"},
        {"NotText", raw_safetensors("{\"\xff\xfe\":1}", ""), "not valid JSON"},
        {"Deep", raw_safetensors("{\"w\":" + std::string(9999, '['), ""), "nested deeper"},
        {"UnknownType", json_of("F32", "F31"), "w: dtype F31 is unknown; use one of BOOL"},
        {"TypeInLowerCase", json_of("F32", "f32"), "dtype f32 is unknown"},
        {"TypeANumber", json_of("\"F32\"", "32"), "w.dtype: must be a string"},
        {"NoType", json_of("\"dtype\":\"F32\",", ""), "\"dtype\" is missing"},
        {"NoShape", json_of("\"shape\":[2,2],", ""), "\"shape\" is missing"},
        {"NoOffsets", json_of(",\"data_offsets\":[0,16]", ""), "\"data_offsets\" is missing"},
        {"UnknownKey", json_of("shape", "form"), "unknown key \"form\""},
        {"NegativeShape", json_of("[2,2]", "[-2,-2]"), "w.shape[0]: -2: must be an integer"},
        {"FractionOfAShape", json_of("[2,2]", "[2,2.5]"), "w.shape[1]: must be an integer"},
        {"ShapeOverflows", json_of("[2,2]", "[4294967296,4294967296,4]"), "more than 2^64"},
        {"ShapeOverflowsToTheRightSize", json_of("[2,2]", "[4611686018427387904,4,4]"),
         "more than 2^64"},
        {"ShapeIsNoList", json_of("[2,2]", "4"), "w.shape: must be a list"},
        {"WrongShape", json_of("[2,2]", "[2,3]"), "shape [2, 3] of F32 takes 24 bytes"},
        {"ManyDimensions", json_of("[2,2]", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2,2]"), "at most 16"},
        {"OneOffset", json_of("[0,16]", "[16]"), "two numbers"},
        {"ThreeOffsets", json_of("[0,16]", "[0,8,16]"), "at most 2"},
        {"NegativeOffset", json_of("[0,16]", "[-16,0]"), "w.data_offsets[0]: -16"},
        {"DescendingOffsets", json_of("[0,16]", "[16,0]"), "the end must not be before the begin"},
        {"OffsetOutside", json_of("[0,16]", "[1,17]"), "end at 17, but the file has 16"},
        {"OffsetHuge", json_of("[0,16]", "[0,18446744073709551615]"), "must be an integer"},
        {"GapAtTheStart", json_of("[2,2],\"data_offsets\":[0,16]", "[3],\"data_offsets\":[4,16]"),
         "leaving a gap after 0"},
        {"Gap", two("[0,8]", "[8,16]").replace(0, 0, ""), ""},  // the good one, see the test
        {"Overlap", two("[0,8]", "[4,12]"), "inside the previous tensor, which ends at 8"},
        {"SameRange", two("[0,8]", "[0,8]"), "inside the previous tensor"},
        {"NameTwice",
         raw_safetensors(R"({"w":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                         R"("w":{"dtype":"U8","shape":[8],"data_offsets":[8,16]}})",
                         kData),
         "\"w\" appears twice"},
        {"MetadataOfNumbers", raw_safetensors(R"({"__metadata__":{"a":1}})", ""),
         "__metadata__.a: must be a string"},
        {"TensorIsNoObject", raw_safetensors(R"({"w":3})", ""), "w: must be an object"},
        {"NameWithALineBreak", raw_safetensors(R"({"w\nv":3})", ""), R"("w\nv")"},
    };
}

TEST(SafetensorsReader, RefusesEveryMalformedFileInOneLineThatNamesFileAndTensor) {
    for (const Bad& bad : bad_files()) {
        SCOPED_TRACE(bad.name);
        if (bad.says[0] == '\0') {
            EXPECT_EQ(parse(bad.file).tensors.size(), 2U);
            continue;
        }
        const std::string message = message_of<InputFileError>([&] { (void)parse(bad.file); });
        EXPECT_THAT(message, AllOf(HasSubstr("f.safetensors: "), HasSubstr(bad.says)));
        EXPECT_LT(message.size(), 400U) << message;
    }
}

TEST(SafetensorsReader, RefusesEveryTruncation) {
    const std::string good = raw_safetensors(kJson, kData);
    for (size_t size = 0; size < good.size(); ++size) {
        (void)message_of<InputFileError>([&] { (void)parse(good.substr(0, size)); });
    }
}

TEST(SafetensorsWriter, LaysOutWhatTheReaderFinds) {
    const SafetensorsPlan plan({{.name = "b", .type = StoredType::BF16, .shape = {3}},
                                {.name = "z", .type = StoredType::F32, .shape = {2, 2}},
                                {.name = "a", .type = StoredType::F32, .shape = {1}}},
                               {{"format", "pt"}});
    EXPECT_EQ(plan.header().size() % 8, 0U);
    EXPECT_EQ(plan.file_bytes(), plan.header().size() + 6 + 16 + 4);
    const TempFolder folder;
    SharedOutputFile file = SharedOutputFile::create(folder / "f", plan.file_bytes());
    file.write_at(0, std::as_bytes(std::span(plan.header())));
    SharedOutputFile other = SharedOutputFile::open(folder / "f");  // another rank
    other.write_at(plan.at("z").begin, std::as_bytes(std::span(kData)));
    const SafetensorsFile found(folder / "f");
    ASSERT_EQ(found.header().tensors.size(), 3U);
    EXPECT_EQ(found.header().tensors[0].name, "a");
    EXPECT_EQ(found.header().tensors[1].name, "z");
    EXPECT_EQ(found.header().tensors[2].name, "b");
    EXPECT_EQ(found.header().metadata.at("format"), "pt");
    std::string z(kData.size(), '\0');
    found.open().read(found.find("z")->begin, std::as_writable_bytes(std::span(z)));
    EXPECT_EQ(z, kData);
    EXPECT_EQ(found.find("c"), nullptr);
}

TEST(SafetensorsReader, TakesTheLargestShapeAndRefusesTheNext) {
    const auto shaped = [](const std::string& shape, const std::string& type, size_t bytes) {
        return raw_safetensors(R"({"w":{"dtype":")" + type + R"(","shape":)" + shape +
                                   R"(,"data_offsets":[0,)" + std::to_string(bytes) + "]}}",
                               std::string(bytes, 'x'));
    };
    const auto refusal = [&](const std::string& shape, const std::string& type) {
        return message_of<InputFileError>([&] { (void)parse(shaped(shape, type, 3)); });
    };
    const std::string behind = " bytes, but data_offsets cover 3; write the file again";
    EXPECT_EQ(refusal("[4294967295,4294967297]", "U8"),
              "f.safetensors: w: shape [4294967295, 4294967297] of U8 takes 18446744073709551615" +
                  behind);
    EXPECT_EQ(
        refusal("[4294967296,4294967296]", "U8"),
        "f.safetensors: w: shape [4294967296, 4294967296] of U8 takes more than 2^64" + behind);
    EXPECT_EQ(
        refusal("[9223372036854775807]", "U16"),
        "f.safetensors: w: shape [9223372036854775807] of U16 takes 18446744073709551614" + behind);
    EXPECT_EQ(refusal("[4611686018427387904]", "F32"),
              "f.safetensors: w: shape [4611686018427387904] of F32 takes more than 2^64" + behind);
    EXPECT_EQ(refusal("[]", "I64"), "f.safetensors: w: shape [] of I64 takes 8" + behind);
    const SafetensorsHeader header = parse(shaped("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,3]", "U8", 3));
    EXPECT_EQ(header.tensors.at(0).shape.size(), 16U);
    EXPECT_EQ(refusal("[4,0,9]", "U64"),
              "f.safetensors: w: shape [4, 0, 9] of U64 takes 0" + behind);
}

TEST(SafetensorsReader, WritesNamesOfALineAsTheyAre) {
    const std::string longest(120, 'n');
    EXPECT_EQ(readable(longest), longest);
    EXPECT_EQ(readable(longest + "n"), "\"" + longest.substr(1));
    EXPECT_EQ(readable(" ~"), " ~");
    EXPECT_EQ(readable("a\x1f"), "\"a\\u001f\"");
    EXPECT_EQ(readable("a\x7f"), "\"a\\u007f\"");
    EXPECT_EQ(shape_text({}), "[]");
    EXPECT_EQ(shape_text({7}), "[7]");
    EXPECT_EQ(shape_text({7, 0, 9}), "[7, 0, 9]");
}

TEST(SafetensorsReader, KnowsEveryTypeByItsNameAndSize) {
    std::string all;
    for (const StoredType type :
         {StoredType::BOOL, StoredType::U8, StoredType::I8, StoredType::F8_E5M2,
          StoredType::F8_E4M3, StoredType::I16, StoredType::U16, StoredType::F16, StoredType::BF16,
          StoredType::I32, StoredType::U32, StoredType::F32, StoredType::F64, StoredType::I64,
          StoredType::U64}) {
        all += std::string(name_of(type)) + std::to_string(item_size(type)) + " ";
        EXPECT_EQ(stored_type_from(name_of(type)), type);
    }
    EXPECT_EQ(all,
              "BOOL1 U81 I81 F8_E5M21 F8_E4M31 I162 U162 F162 BF162 I324 U324 F324 F648 I648 "
              "U648 ");
    EXPECT_EQ(stored_type_from(""), std::nullopt);
}

TEST(SafetensorsWriter, WritesTheHeaderByteForByte) {
    // The types with the largest items first, then by name; spaces up to a multiple of 8.
    const SafetensorsPlan plan({{.name = "b", .type = StoredType::U8, .shape = {}},
                                {.name = "d", .type = StoredType::BF16, .shape = {3}},
                                {.name = "c", .type = StoredType::BF16, .shape = {2, 5}},
                                {.name = "z\xff", .type = StoredType::F32, .shape = {0, 4}},
                                {.name = "a", .type = StoredType::F32, .shape = {2, 2}}},
                               {{"format", "pt"}});
    const std::string json = R"({"__metadata__":{"format":"pt"},)"
                             R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                             "\"z\uFFFD\":"
                             R"({"dtype":"F32","shape":[0,4],"data_offsets":[16,16]},)"
                             R"("c":{"dtype":"BF16","shape":[2,5],"data_offsets":[16,36]},)"
                             R"("d":{"dtype":"BF16","shape":[3],"data_offsets":[36,42]},)"
                             R"("b":{"dtype":"U8","shape":[],"data_offsets":[42,43]}})";
    const uint64_t length = plan.header().size() - 8;
    EXPECT_EQ(length, (json.size() + 7) / 8 * 8);
    EXPECT_EQ(plan.header().substr(0, 8),
              std::string(reinterpret_cast<const char*>(&length), sizeof length));
    EXPECT_EQ(plan.header().substr(8), json + std::string(length - json.size(), ' '));
    EXPECT_EQ(plan.file_bytes(), 8 + length + 43);
    EXPECT_EQ(plan.at("c").begin, 8 + length + 16);
    EXPECT_EQ(plan.at("c").end, 8 + length + 36);
    const SafetensorsPlan none({}, {});
    EXPECT_EQ(none.header(), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
    EXPECT_EQ(none.file_bytes(), 16U);
}

TEST(SafetensorsWriter, NeverReplacesAFile) {
    const TempFolder folder;
    write_file(folder / "f", "mine");
    EXPECT_THAT(
        message_of<OutputFileError>([&] { (void)SharedOutputFile::create(folder / "f", 4); }),
        HasSubstr("File exists"));
    EXPECT_EQ(read_file(folder / "f"), "mine");
}

TEST(TensorFolder, FindsTensorsInTheShardsOfAnIndex) {
    const TempFolder folder;
    write_file(folder / "one.safetensors", raw_safetensors({{"a", "F32", "[4]", kData}}));
    write_file(folder / "two.safetensors", raw_safetensors({{"b", "F32", "[2,2]", kData}}));
    write_file(folder / "model.safetensors.index.json",
               R"({"metadata":{"total_size":32},"weight_map":{"a":"one.safetensors",)"
               R"("b":"two.safetensors"}})");
    const TensorFolder found(folder / ".");
    EXPECT_EQ(found.tensors().size(), 2U);
    EXPECT_EQ(found.tensors().at("b").tensor->shape, (std::vector<int64_t>{2, 2}));
    EXPECT_THAT(found.tensors().at("b").file->path(), HasSubstr("two.safetensors"));
}

TEST(TensorFolder, SaysWhichShardOrTensorIsMissing) {
    const TempFolder folder;
    const auto index = [&](const std::string& map) {
        write_file(folder / "model.safetensors.index.json", R"({"weight_map":)" + map + "}");
        return message_of<InputFileError>([&] { const TensorFolder found(folder / "."); });
    };
    write_file(folder / "one.safetensors", raw_safetensors({{"a", "F32", "[4]", kData}}));
    EXPECT_THAT(index(R"({"a":"two.safetensors"})"),
                HasSubstr("weight_map.a: the shard two.safetensors is missing; download"));
    EXPECT_THAT(index(R"({"b":"one.safetensors"})"),
                HasSubstr("one.safetensors: tensor b: is missing"));
    for (const char* name : {"../one.safetensors", "/etc/passwd", "", "..", R"(a\u001b[2J)"}) {
        EXPECT_THAT(index(R"({"a":")" + std::string(name) + "\"}"),
                    HasSubstr("must name a file in the same folder"));
    }
    EXPECT_THAT(index("3"), HasSubstr("weight_map: must be an object"));
}

}  // namespace
}  // namespace vocabpipe::testing
