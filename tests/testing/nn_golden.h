/* nn_golden.h - values of PyTorch 2.13.0+cpu, written by nn_golden.py. */
#ifndef NN_GOLDEN_H
#define NN_GOLDEN_H

#include <stdbool.h>

static const float golden_linear_weight[] = {
    -0x1.1b47d00000000p-8, 0x1.3d26260000000p-2, -0x1.e696fc0000000p-2, -0x1.b317920000000p-2,
    -0x1.c769620000000p-3, 0x1.3d12a60000000p-3, -0x1.76d6800000000p-7, 0x1.d4c2f40000000p-2,
    -0x1.a3ba840000000p-5, 0x1.38e1a40000000p-3, -0x1.65573c0000000p-3, -0x1.d0d7d40000000p-4};
static const float golden_linear_bias[] = {-0x1.1a677a0000000p-1, -0x1.878bac0000000p-2,
                                           -0x1.e76b080000000p-3, 0x1.5e68100000000p-6};
static const float golden_conv_weight[] = {
    0x1.7dabc80000000p-4,  0x1.21a4560000000p-3,  -0x1.4741280000000p-3, -0x1.a469640000000p-4,
    0x1.5ea9be0000000p-4,  0x1.90d7ea0000000p-3,  -0x1.8d5fbe0000000p-5, 0x1.6939460000000p-3,
    -0x1.37397e0000000p-5, 0x1.98a08e0000000p-6,  0x1.b517020000000p-3,  -0x1.bfcdac0000000p-3,
    -0x1.2fe3b20000000p-3, -0x1.e8d4760000000p-5, -0x1.7853bc0000000p-4, 0x1.a111a60000000p-3,
    -0x1.38e35c0000000p-3, -0x1.bc6c120000000p-4, -0x1.513f1a0000000p-3, -0x1.c418560000000p-3,
    -0x1.19c83c0000000p-3, 0x1.9ef1920000000p-3,  0x1.aecba40000000p-4,  0x1.d3ebaa0000000p-4,
    0x1.9630c40000000p-7,  -0x1.eef69e0000000p-4, 0x1.46ac940000000p-5,  -0x1.c2b6220000000p-3,
    -0x1.5ccbc00000000p-3, -0x1.f1b6220000000p-4, 0x1.3090b40000000p-3,  0x1.1b07280000000p-3,
    -0x1.ac2a920000000p-4, -0x1.16ae980000000p-7, 0x1.34ba440000000p-3,  0x1.dfe2dc0000000p-3,
    0x1.7f2a1e0000000p-4,  0x1.04d8de0000000p-5,  0x1.43a7ee0000000p-3,  -0x1.1c39c20000000p-3,
    0x1.67ce800000000p-5,  -0x1.76410c0000000p-3, -0x1.4e90b80000000p-3, -0x1.f2ba860000000p-4,
    0x1.b4d5800000000p-4,  0x1.8442a40000000p-4,  -0x1.1df07a0000000p-3, 0x1.23aa4a0000000p-4,
    0x1.08ffb20000000p-3,  -0x1.e76b5c0000000p-6, 0x1.26e5140000000p-7,  0x1.bf64720000000p-5,
    0x1.2b77940000000p-3,  0x1.cf80d20000000p-3};
static const float golden_conv_bias[] = {-0x1.73fe7a0000000p-3, -0x1.61cda20000000p-4,
                                         0x1.7b6d140000000p-4};
static const double golden_linear64_weight[] = {
    -0x1.04dd0ffd6b60fp-2, -0x1.0b966b47a77a1p-2, 0x1.ac24bfd2c746fp-2,  0x1.728a7df837cc1p-3,
    0x1.f39ab7b0bd5c9p-2,  0x1.917ba4f2f927ep-2,  -0x1.e57864d6f6b63p-3, 0x1.1f312e1b486c7p-4,
    0x1.3706aaa601552p-2,  0x1.32aadde2d7939p-2,  -0x1.025846d33cd83p-1, -0x1.059371214a1b1p-1};
static const double golden_linear64_bias[] = {-0x1.893901113429bp-2, -0x1.115aa0fff6ee2p-1,
                                              -0x1.beba4f7034344p-2, 0x1.9af0ae312066cp-2};
static const float golden_normal37[] = {
    -0x1.c06e140000000p+0, -0x1.ce02280000000p+0, -0x1.2f58000000000p-10, -0x1.7895740000000p-2,
    0x1.1945140000000p+1,  0x1.e24f060000000p+0,  -0x1.0e63680000000p-3,  -0x1.dd7f040000000p+1,
    0x1.2501380000000p+0,  -0x1.0369e80000000p+1, 0x1.3331000000000p+0,   0x1.1dc3bc0000000p+0,
    0x1.7ab7bc0000000p-1,  0x1.7cd7260000000p+1,  0x1.5de51c0000000p+1,   0x1.64c2000000000p-8,
    -0x1.1a47840000000p+1, -0x1.72288c0000000p+1, 0x1.a220080000000p+0,   0x1.0b235c0000000p+1,
    0x1.b29b160000000p+0,  0x1.731bec0000000p-1,  0x1.c815f00000000p+0,   0x1.61df3c0000000p+0,
    0x1.17a5f00000000p-4,  -0x1.f85e8c0000000p-1, 0x1.a01d040000000p+0,   0x1.04ede20000000p+0,
    0x1.3774ac0000000p-3,  0x1.46aeaa0000000p+2,  -0x1.38096e0000000p+1,  -0x1.56313c0000000p+1,
    0x1.7406780000000p+1,  0x1.5690440000000p-1,  -0x1.e678ac0000000p+0,  0x1.f632e60000000p-2,
    -0x1.1282340000000p-1};
static const double golden_normal6[] = {0x1.ca7eb8902be3ap+1,  -0x1.63c5043e37f50p-4,
                                        -0x1.edc52414e1dcap+1, 0x1.a3096ca3e350dp+0,
                                        -0x1.ab468330fc26cp+0, -0x1.260a590b74404p+1};
static const double golden_normal37d[] = {
    -0x1.07bb92e9262dcp+2, -0x1.f8d5e524e5180p-3, -0x1.9f235d1ad0b6cp+0, 0x1.3fdfd856d4ca6p+1,
    -0x1.449eece710105p+0, -0x1.068a3e5dc9291p+1, -0x1.7e2e95925a43ep-1, -0x1.3b9e3bd0377c5p+0,
    -0x1.0bae386384915p+1, 0x1.c60cb8d864a6ep+1,  0x1.25b6d6783b0f0p+0,  0x1.2244d8bac2a66p+2,
    0x1.62c0028f12ffap+1,  -0x1.f429ca762a28ap+0, 0x1.491a0f348cb68p-1,  0x1.2d109df729ddbp+0,
    0x1.9d340aa3ffd27p-1,  -0x1.88792399e4804p-1, -0x1.02cbf54f08f8ep+1, -0x1.e865dbf57420ep-1,
    0x1.d71cb87e3a1bbp-2,  -0x1.bd33b72ba5504p+0, 0x1.6a9ecee4e86fdp+1,  0x1.2d1d920095746p+1,
    0x1.0c08d93547044p+1,  0x1.d8be7ec44d10ap-1,  0x1.8ad3295f1744ap-1,  0x1.ba96597679349p-2,
    0x1.6bc297ae32ec7p+0,  0x1.f5f1cea95a333p-1,  -0x1.194867157f914p+1, 0x1.fa43c1850181ep-1,
    0x1.e3e6669fbb449p-2,  0x1.9ccf34c9beef4p-4,  -0x1.680b72e2f7848p+1, 0x1.29f53c5d182acp+1,
    0x1.679a2c064800fp+1};
static const double golden_sgd_x[] = {
    0x1.9b47008a2a7adp-1,  0x1.660f0cd30f452p-3,  0x1.6c744b8324fcfp-4, -0x1.3a393f2853e66p-1,
    0x1.7a539ef4531b4p-5,  -0x1.5e463bc486fa1p+0, 0x1.599850aafe9b0p-2, 0x1.02d87d09481cfp+0,
    -0x1.6f67e9809103bp+0, 0x1.f471f0decd824p-1,  0x1.0b4a212789e04p-1, 0x1.3ce81bce70368p+0};
static const double golden_sgd_y[] = {
    -0x1.bab1833353e96p-1, 0x1.3222caa605b52p-2, 0x1.ad47a7b72cb34p-2, -0x1.471553050fca8p-4,
    0x1.da52850ba3219p-1,  0x1.a1a07bc68660ep-1, 0x1.fb12d3ce8f7f2p-2, -0x1.50856b76612fep-3};
static const double golden_sgd_w[] = {-0x1.5b1ddc75fbc36p-1, -0x1.0f21aa5793d8dp+0,
                                      0x1.7ed218b2fe88cp-1,  0x1.e94d88dfaaa50p-3,
                                      -0x1.918fd46856cfbp-2, 0x1.371f2758418dfp-3};
static const double golden_sgd_b[] = {-0x1.2f092354d1a68p+0, 0x1.1197b90ac6addp-1};
static const struct golden_sgd {
    double momentum, dampening, weight_decay;
    bool nesterov, maximize;
    double losses[4], weight64[6], bias64[2], weight32[6];
} golden_sgd[] = {
    {0.0,
     0.0,
     0.0,
     false,
     false,
     {0x1.fbd7889c841d7p+1, 0x1.70228414f070fp+1, 0x1.3d25c51cff957p+1, 0x1.201352f033e32p+1},
     {-0x1.15fec33e5079dp-1, -0x1.91867ef8abc4dp-1, 0x1.b73252beb23a5p-2, 0x1.a15c07a3bf33ep-3,
      -0x1.833469ec7c6d2p-2, 0x1.d62419a25f0d1p-5},
     {-0x1.77ece83e903bep-1, 0x1.fdacc4b107b88p-2},
     {-0x1.15fec20000000p-1, -0x1.91867e0000000p-1, 0x1.b732500000000p-2, 0x1.a15c040000000p-3,
      -0x1.83346a0000000p-2, 0x1.d624180000000p-5}},
    {0.0,
     0.0,
     0.1,
     false,
     false,
     {0x1.fbd7889c841d7p+1, 0x1.693a4a166cfdbp+1, 0x1.34bc76553873bp+1, 0x1.1711fb55f71aap+1},
     {-0x1.0fd7447a22d8bp-1, -0x1.882775751e39bp-1, 0x1.abaaeafce432ep-2, 0x1.989693131d14dp-3,
      -0x1.7ad0d3c9f8d02p-2, 0x1.c41a7cb6f8e6fp-5},
     {-0x1.6e920da13368ap-1, 0x1.f32f5bd14d32bp-2},
     {-0x1.0fd7420000000p-1, -0x1.8827720000000p-1, 0x1.abaaea0000000p-2, 0x1.9896920000000p-3,
      -0x1.7ad0d40000000p-2, 0x1.c41a7a0000000p-5}},
    {0.9,
     0.0,
     0.0,
     false,
     false,
     {0x1.fbd7889c841d7p+1, 0x1.70228414f070fp+1, 0x1.0b249c234a537p+1, 0x1.8599943a733cep+0},
     {-0x1.c1e38208b84b5p-2, -0x1.25cb07ee2c83dp-1, 0x1.7ec0a4187ff4dp-3, 0x1.6aad83da7a31cp-3,
      -0x1.77fce455cb5d2p-2, -0x1.eaf528ba4e41bp-7},
     {-0x1.90c52a256933bp-2, 0x1.e0661b6920e2ap-2},
     {-0x1.c1e3820000000p-2, -0x1.25cb060000000p-1, 0x1.7ec0960000000p-3, 0x1.6aad820000000p-3,
      -0x1.77fce40000000p-2, -0x1.eaf52e0000000p-7}},
    {0.9,
     0.0,
     0.05,
     false,
     false,
     {0x1.fbd7889c841d7p+1, 0x1.6cac1524e67b6p+1, 0x1.06023a9422572p+1, 0x1.7a40d7fbe641dp+0},
     {-0x1.b70cde4dcbd4cp-2, -0x1.1d9150e2465dcp-1, 0x1.6ae28a5f3157bp-3, 0x1.62f2db9f2a47cp-3,
      -0x1.707ae605e2475p-2, -0x1.1473fafa96bc3p-6},
     {-0x1.8093fb4e0424dp-2, 0x1.d7156b43bb635p-2},
     {-0x1.b70cde0000000p-2, -0x1.1d914e0000000p-1, 0x1.6ae2800000000p-3, 0x1.62f2da0000000p-3,
      -0x1.707ae60000000p-2, -0x1.1473fe0000000p-6}},
    {0.9,
     0.3,
     0.0,
     false,
     false,
     {0x1.fbd7889c841d7p+1, 0x1.70228414f070fp+1, 0x1.189303aa17104p+1, 0x1.b56f2d44e9c7fp+0},
     {-0x1.e0bf872136d74p-2, -0x1.44ac4f5eca8d5p-1, 0x1.02403adab6c1ep-2, 0x1.796dd00cf99ffp-3,
      -0x1.7bb74f0946214p-2, 0x1.7acbe1a4ad43dp-8},
     {-0x1.f2ae45acf309fp-2, 0x1.e9f191ff54b60p-2},
     {-0x1.e0bf880000000p-2, -0x1.44ac4c0000000p-1, 0x1.0240340000000p-2, 0x1.796dd00000000p-3,
      -0x1.7bb74e0000000p-2, 0x1.7acbee0000000p-8}},
    {0.8,
     0.0,
     0.0,
     true,
     false,
     {0x1.fbd7889c841d7p+1, 0x1.1265bc348c31dp+1, 0x1.6eb99e200b220p+0, 0x1.0c50b32b9b576p+0},
     {-0x1.8e2f1fff21112p-2, -0x1.e656d3ed08fe4p-2, 0x1.79169fc5984f9p-4, 0x1.558da8ecab3bfp-3,
      -0x1.703764ebf2b22p-2, -0x1.91c8f9918d46ep-5},
     {-0x1.f1a0aa3cd5e8dp-3, 0x1.cd3c0c40c2159p-2},
     {-0x1.8e2f200000000p-2, -0x1.e656cc0000000p-2, 0x1.7916820000000p-4, 0x1.558da80000000p-3,
      -0x1.7037620000000p-2, -0x1.91c8fc0000000p-5}},
    {0.8,
     0.0,
     0.05,
     true,
     false,
     {0x1.fbd7889c841d7p+1, 0x1.0d1eea1e78ae8p+1, 0x1.635c376110e2ap+0, 0x1.01cf3edceb8a4p+0},
     {-0x1.81c8f25137f5dp-2, -0x1.d3eee1d735dd9p-2, 0x1.52cdfba3861a2p-4, 0x1.4c96c1c15a378p-3,
      -0x1.6663b1611d3f3p-2, -0x1.9fb68ef99a750p-5},
     {-0x1.d1af42e909839p-3, 0x1.c1d6ab80d45fcp-2},
     {-0x1.81c8f20000000p-2, -0x1.d3eede0000000p-2, 0x1.52cde60000000p-4, 0x1.4c96c00000000p-3,
      -0x1.6663b20000000p-2, -0x1.9fb6920000000p-5}},
    {0.7,
     0.2,
     0.01,
     false,
     false,
     {0x1.fbd7889c841d7p+1, 0x1.6f70dba9ed21dp+1, 0x1.1df613ecc62e0p+1, 0x1.d16021be1c370p+0},
     {-0x1.f37c2ea2e77eep-2, -0x1.58609e8bcd168p-1, 0x1.331d7061743b1p-2, 0x1.8354ca07baed6p-3,
      -0x1.7c799403fa0f8p-2, 0x1.40d0d98543e41p-6},
     {-0x1.1af70662e7596p-1, 0x1.ed984c5446a90p-2},
     {-0x1.f37c2e0000000p-2, -0x1.58609c0000000p-1, 0x1.331d6c0000000p-2, 0x1.8354c80000000p-3,
      -0x1.7c79940000000p-2, 0x1.40d0de0000000p-6}},
    {0.0,
     0.0,
     0.0,
     false,
     true,
     {0x1.fbd7889c841d7p+1, 0x1.504b4c818a18dp+2, 0x1.860b69db919e4p+2, 0x1.af7d09e965b83p+2},
     {-0x1.adf43a2c37053p-1, -0x1.651ffcfa07b6bp+0, 0x1.29c068ab888f6p+0, 0x1.2348fdd0f1b6dp-2,
      -0x1.a00ea4cec8db7p-2, 0x1.11ac98da3b18fp-2},
     {-0x1.bfd1f32ff9ab2p+0, 0x1.24e364c4ac0ccp-1},
     {-0x1.adf43a0000000p-1, -0x1.651ffe0000000p+0, 0x1.29c06a0000000p+0, 0x1.2348fe0000000p-2,
      -0x1.a00ea40000000p-2, 0x1.11ac9a0000000p-2}},
    {0.8,
     0.0,
     0.05,
     true,
     true,
     {0x1.fbd7889c841d7p+1, 0x1.967256dc545dap+2, 0x1.18551d30db3bap+3, 0x1.6ad1314bca562p+3},
     {-0x1.0fe6b05544da1p+0, -0x1.dfaf41f879b27p+0, 0x1.cb3e0f2319aa8p+0, 0x1.6537f82921cf4p-2,
      -0x1.aa16c3537a10ap-2, 0x1.bfc2b3eec4300p-2},
     {-0x1.4ac5c613fefa0p+1, 0x1.3759b51a66818p-1},
     {-0x1.0fe6b00000000p+0, -0x1.dfaf440000000p+0, 0x1.cb3e120000000p+0, 0x1.6537fa0000000p-2,
      -0x1.aa16c40000000p-2, 0x1.bfc2b60000000p-2}},
};
static const double golden_cosine[] = {
    0x1.999999999999ap-2, 0x1.937e70c2642e1p-2, 0x1.81977d1521ad6p-2, 0x1.651d10a4621bap-2,
    0x1.4000000000000p-2, 0x1.14c7c6846878dp-2, 0x1.ccccccccccccep-3, 0x1.700a0c90c8a82p-3,
    0x1.199999999999cp-3, 0x1.9ebef0a1aac4ap-4, 0x1.2cd53edeac7dep-4, 0x1.ca72e05344f62p-5,
    0x1.999999999999ap-5};
static const double golden_cycle_plain_lr[] = {
    0x1.0624dd2f1aa00p-6, 0x1.8f64c6a3124e8p-5, 0x1.1633dc611a4cep-3, 0x1.fafa6402d186cp-3,
    0x1.620f4652ac78cp-2, 0x1.967fe624dec73p-2, 0x1.975004163d23ap-2, 0x1.8c3b4b811fea1p-2,
    0x1.7870c99f7119dp-2, 0x1.5cd70521025fcp-2, 0x1.3aaf7c1895f31p-2, 0x1.1388033d2bb9dp-2,
    0x1.d25157f529f7dp-3, 0x1.7afe0852c966fp-3, 0x1.250f424766bb6p-3, 0x1.a8dbef2884d4cp-4,
    0x1.198aac0e7f036p-4, 0x1.45602fb05ffcep-5, 0x1.26d26d797c6dcp-6, 0x1.2a4ae20434820p-8};
static const double golden_cycle_plain_momentum[] = {
    0x1.e666666666666p-1, 0x1.e20864a23666ep-1, 0x1.d66bd2da36278p-1, 0x1.c786e605aee47p-1,
    0x1.ba6e8b606f68dp-1, 0x1.b39a8be666314p-1, 0x1.b37c65f6cf032p-1, 0x1.b4defd6666e6bp-1,
    0x1.b7584e48a1ddfp-1, 0x1.bacb87bff7e63p-1, 0x1.bf1079ff87d5ep-1, 0x1.c3f56a63686d9p-1,
    0x1.c94156af2db9ap-1, 0x1.ceb68d17991b3p-1, 0x1.d4157ae0bd2fbp-1, 0x1.d91f90de1fa7bp-1,
    0x1.dd9a1c237f1aap-1, 0x1.e150f1be72fd5p-1, 0x1.e418ce5cddc0ep-1, 0x1.e5d14e3a480adp-1};
static const double golden_cycle_linear_lr[] = {
    0x1.0624dd2f1a9fcp-6, 0x1.b39f2442fb4d4p-4, 0x1.92da889d17f94p-3, 0x1.25f2bf8c59260p-2,
    0x1.82783aca264f5p-2, 0x1.861866a309a3ap-2, 0x1.6c16cd5a49b0ep-2, 0x1.5215341189be3p-2,
    0x1.38139ac8c9cb8p-2, 0x1.1e12018009d8cp-2, 0x1.0410683749e61p-2, 0x1.d41d9ddd13e6bp-3,
    0x1.a01a6b4b94014p-3, 0x1.6c1738ba141bdp-3, 0x1.3814062894366p-3, 0x1.0410d39714510p-3,
    0x1.a01b420b28d70p-4, 0x1.3814dce8290c4p-4, 0x1.a01cef8a52830p-5, 0x1.a0204a88a5da0p-6};
static const double golden_cycle_linear_momentum[] = {
    0x1.e666666666666p-1, 0x1.da5a5a5a5a5a5p-1, 0x1.ce4e4e4e4e4e5p-1, 0x1.c242424242424p-1,
    0x1.b636363636363p-1, 0x1.b5a35a35a35a3p-1, 0x1.b8e38e38e38e3p-1, 0x1.bc23c23c23c24p-1,
    0x1.bf63f63f63f64p-1, 0x1.c2a42a42a42a4p-1, 0x1.c5e45e45e45e4p-1, 0x1.c924924924924p-1,
    0x1.cc64c64c64c64p-1, 0x1.cfa4fa4fa4fa5p-1, 0x1.d2e52e52e52e5p-1, 0x1.d625625625625p-1,
    0x1.d965965965965p-1, 0x1.dca5ca5ca5ca6p-1, 0x1.dfe5fe5fe5fe6p-1, 0x1.e326326326326p-1};
static const double golden_cycle_three_lr[] = {
    0x1.47ae147ae1478p-5, 0x1.219da382d6fb0p-4, 0x1.3803d1ce3bdb3p-3, 0x1.073ef87aebd0cp-2,
    0x1.6587eb871b4adp-2, 0x1.96b1815c2a745p-2, 0x1.89f5aafa6b145p-2, 0x1.43aca0909f906p-2,
    0x1.b7a2ceee967e2p-3, 0x1.d74d071a74fc4p-4, 0x1.a3f55ded93b10p-5, 0x1.463b95c9360a9p-5,
    0x1.363f12f846ac9p-5, 0x1.163d5e8e9d89ep-5, 0x1.d38266fc1a5b9p-6, 0x1.6b6d9c119506fp-6,
    0x1.ff81d80be5410p-7, 0x1.38cd6534e5616p-7, 0x1.3176230b490e5p-8, 0x1.880ccb7aeb75bp-10};
static const double golden_cycle_three_momentum[] = {
    0x1.ccccccccccccdp-1, 0x1.c86ecb089ccd5p-1, 0x1.bcd239409c8dfp-1, 0x1.aded4c6c154aep-1,
    0x1.a0d4f1c6d5cf4p-1, 0x1.9a00f24ccc97bp-1, 0x1.9bc5b3a17c818p-1, 0x1.a588bc302e1aep-1,
    0x1.b3f567ac9642ap-1, 0x1.c21fd076e750ep-1, 0x1.cb32ac69eb7b0p-1, 0x1.ccccccccccccdp-1,
    0x1.ccccccccccccdp-1, 0x1.ccccccccccccdp-1, 0x1.ccccccccccccdp-1, 0x1.ccccccccccccdp-1,
    0x1.ccccccccccccdp-1, 0x1.ccccccccccccdp-1, 0x1.ccccccccccccdp-1, 0x1.ccccccccccccdp-1};

#endif
