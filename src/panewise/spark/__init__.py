"""WHERE: plans on Spark. The only importer of pyspark."""
