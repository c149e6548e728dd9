"""A packed cloud in virtual time: rented machines that a packer reconfigures every period."""
