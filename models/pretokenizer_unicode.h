// Characters that Unicode 15 and 16 added, by category, as ranges for the inside of a PCRE2 class:
// PCRE2 10.42 knows Unicode 14, the tokenizers that models were trained with know 16. In the
// patterns these stand beside the property they complete. Thread rule: text only.
#pragma once

// clang-format off
#define NEW_UPPER \
  R"(\x{1c89}\x{a7cb}-\x{a7cc}\x{a7da}\x{a7dc}\x{10d50}-\x{10d65})"
#define NEW_LOWER \
  R"(\x{1c8a}\x{a7cd}\x{a7db}\x{10d70}-\x{10d85}\x{1df25}-\x{1df2a})"
#define NEW_OTHER_LETTER \
  R"(\x{105c0}-\x{105f3}\x{10d4a}-\x{10d4f}\x{10d6f}\x{10ec2}-\x{10ec4}\x{1123f}-\x{11240})" \
  R"(\x{11380}-\x{11389}\x{1138b}\x{1138e}\x{11390}-\x{113b5}\x{113b7}\x{113d1}\x{113d3})" \
  R"(\x{11bc0}-\x{11be0}\x{11f02}\x{11f04}-\x{11f10}\x{11f12}-\x{11f33}\x{1342f}\x{13441}-\x{13446})" \
  R"(\x{13460}-\x{143fa}\x{16100}-\x{1611d}\x{16d40}-\x{16d6c}\x{18cff}\x{1b132}\x{1b155})" \
  R"(\x{1e030}-\x{1e06d}\x{1e4d0}-\x{1e4eb}\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2b739}\x{2ebf0}-\x{2ee5d})" \
  R"(\x{31350}-\x{323af})"
#define NEW_MARK \
  R"(\x{897}\x{cf3}\x{ece}\x{10d69}-\x{10d6d}\x{10efc}-\x{10eff}\x{11241}\x{113b8}-\x{113c0}\x{113c2})" \
  R"(\x{113c5}\x{113c7}-\x{113ca}\x{113cc}-\x{113d0}\x{113d2}\x{113e1}-\x{113e2}\x{11f00}-\x{11f01})" \
  R"(\x{11f03}\x{11f34}-\x{11f3a}\x{11f3e}-\x{11f42}\x{11f5a}\x{13440}\x{13447}-\x{13455})" \
  R"(\x{1611e}-\x{1612f}\x{1e08f}\x{1e4ec}-\x{1e4ef}\x{1e5ee}-\x{1e5ef})"
#define NEW_NUMBER \
  R"(\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{11f50}-\x{11f59}\x{16130}-\x{16139})" \
  R"(\x{16d70}-\x{16d79}\x{1ccf0}-\x{1ccf9}\x{1d2c0}-\x{1d2d3}\x{1e4f0}-\x{1e4f9}\x{1e5f1}-\x{1e5fa})"
#define NEW_PUNCTUATION \
  R"(\x{1b4e}-\x{1b4f}\x{1b7f}\x{10d6e}\x{113d4}-\x{113d5}\x{113d7}-\x{113d8}\x{11b00}-\x{11b09}\x{11be1})" \
  R"(\x{11f43}-\x{11f4f}\x{16d6d}-\x{16d6f}\x{1e5ff})"
#define NEW_LETTER NEW_UPPER NEW_LOWER NEW_OTHER_LETTER
// Unicode 17, which splitting off digits goes by already.
#define NEWEST_NUMBER R"(\x{11de0}-\x{11de9}\x{16ff4}-\x{16ff6})"
// clang-format on
